//go:build linux

package native

import (
	"bytes"
	"fmt"
	"os"
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
	t.Run("files", func(t *testing.T) { readFiles(t, m, g) })
	file := fmt.Append(nil, "x")
	if err := g.WriteFile(t.Context(), "new", 0o644, 1, bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	if names, _ := m.Look(sandbox.Home); !slices.Contains(names, "new") {
		t.Errorf("a new file is not seen: %q", names)
	}
}

// readFiles is for what the host reads by itself.
func readFiles(t *testing.T, m *machine, g *guest.Guest) {
	t.Helper()
	p, err := g.Start(t.Context(), guest.Command{
		Args: []string{"/bin/sh", "-c", `
			printf text > file; printf 12345678 > eight; printf 123456789 > nine; : > empty; chmod 0 eight
			mkfifo fifo; ln -s file straight; ln file hard; ln -s /etc/passwd out; ln -s . here; truncate -s 1T sparse; mkdir closed; cp file closed; chmod 0 closed`},
		Dir: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID,
	}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := p.Wait(t.Context()); err != nil || e.Code != 0 {
		t.Fatal(e, err)
	}
	for _, test := range []struct {
		path, want string
		ok         bool
	}{
		{"file", "text", true},
		{"hard", "text", true},
		{"eight", "12345678", true},
		{"empty", "", true},
		{"closed/file", "text", true},
		{"nine", "", false},
		{"sparse", "", false},
		{"fifo", "", false},
		{"straight", "", false},
		{"out", "", false},
		{"here/file", "", false},
		{"many", "", false},
		{"nothere", "", false},
		{"file/file", "", false},
		{"../../../etc/passwd", "", false},
		{"../../proc/self/status", "", false},
	} {
		content, ok := m.Read(sandbox.Home+"/"+test.path, 8)
		if test.path == "eight" || test.path == "closed/file" {
			test.ok = test.ok && os.Geteuid() == 0
		}
		if ok != test.ok || ok && string(content) != test.want {
			t.Errorf("%s: %q, %t", test.path, content, ok)
		}
	}
}
