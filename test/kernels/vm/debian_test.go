package vm

import (
	"slices"
	"testing"
)

// A tree for another architecture takes over what its twin has, which is the tree that
// others boot: it is not made twice.
func TestWholeTwice(t *testing.T) {
	d := Debian{Suite: "trixie", Arch: "amd64", Boots: true, Packages: []string{"python3"}}
	once, twice := d.whole(), d.whole().whole()
	if !slices.Equal(once.Packages, twice.Packages) || !slices.Contains(once.Packages, "systemd") || len(d.Packages) != 1 {
		t.Errorf("%v, then %v", once.Packages, twice.Packages)
	}
}
