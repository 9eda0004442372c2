//go:build linux

package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/test/ledger"
)

// The commands of docs/profiles.md work when pasted: one profile is used without a server,
// with one, by curl and by a key that is for it alone, and its manifest verifies.
func TestProfilesPage(t *testing.T) {
	ledger.Check(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "profiles.md"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	var script strings.Builder
	for _, block := range fenced.FindAllSubmatch(text, -1) {
		script.Write(block[1])
	}
	served := strings.ReplaceAll(strings.ReplaceAll(script.String(), "127.0.0.1:7463", address), "serve --state state", "serve --state state --listen "+address)
	out, err := runScript(t, checkout(t), served)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, served)
	}
	for want, times := range map[string]int{
		"285\n": 3, "--memory: 1GiB is wider than the profile squares, which has 128MiB": 1, `"stdout":"42\n"`: 1, `"profile":{"name":"squares","digest":"sha256:`: 1,
		"this key is for some profiles only": 1, `"strict":true`: 1, "DIGEST": 1,
	} {
		if n := strings.Count(out, want); n != times {
			t.Errorf("%q %d times:\n%s", want, n, out)
		}
	}
}
