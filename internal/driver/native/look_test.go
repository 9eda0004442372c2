//go:build linux

package native

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/guest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// The host sees what a directory holds, and is led nowhere by what a hostile
// program puts there.
func TestLook(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	plan := planFor(t, d, "look")
	made, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	m := made.(*machine)
	defer func() {
		if err := m.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	p, g, err := startIn(t.Context(), m, plan, guest.Command{Args: []string{"/bin/sh", "-c", `
		mkfifo pipe; ln -s /etc link; mkdir dir many; : > "$(printf 'a\nb')"
		i=0; while [ $i -lt 300 ]; do : > many/file-with-a-name-$i; i=$((i+1)); done
		ln -s /etc /tmp/out; ln -s dir way`}}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if e, err := p.Wait(t.Context()); err != nil || e.Code != 0 {
		t.Fatal(e, err)
	}
	names, ok := m.Look(sandbox.Home)
	slices.Sort(names)
	if want := []string{"a\nb", "dir", "link", "many", "pipe", "way"}; !ok || !slices.Equal(names, want) {
		t.Errorf("%q, %v", names, ok)
	}
	if names, ok := m.Look(sandbox.Home + "/dir"); !ok || len(names) != 0 {
		t.Errorf("an empty directory: %q, %v", names, ok)
	}
	for _, dir := range []string{"many", "link", "pipe", "way", "nothere", "a\nb", "../../..", "../../tmp/out"} {
		if names, ok := m.Look(sandbox.Home + "/" + dir); ok {
			t.Errorf("%q: %q", dir, names)
		}
	}
	file := fmt.Append(nil, "x")
	if err := g.WriteFile(t.Context(), "new", 0o644, 1, bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	if names, _ := m.Look(sandbox.Home); !slices.Contains(names, "new") {
		t.Errorf("a new file is not seen: %q", names)
	}
}
