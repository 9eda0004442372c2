//go:build linux

package drivertest

import (
	"os"
	"path/filepath"
	"strings"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// A directory that the engine keeps is shown as it is, although the way there on the host is
// closed, and nobody inside writes to it. The control is what the same program can write to.
func (h *harness) testKept() {
	closed := filepath.Join(h.TempDir(), "closed")
	dir := filepath.Join(closed, "files")
	for path, mode := range map[string]os.FileMode{closed: 0o700, dir: 0o777, filepath.Join(dir, "below"): 0o777} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			h.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			h.Fatal(err)
		}
	}
	words := strings.Repeat("words\n", 10_000)
	file := filepath.Join(dir, "below", "words")
	if err := os.WriteFile(file, []byte(words), 0o644); err != nil {
		h.Fatal(err)
	}
	if err := os.Chmod(file, 0o666); err != nil { // nothing but the view keeps anybody from writing
		h.Fatal(err)
	}
	spec := sandbox.Spec{Code: "x", Driver: h.driver.Name()}.WithDefaults().Machine()
	for _, guest := range []string{sandbox.PythonPackagesDir, sandbox.NPMPackagesDir} {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Host: dir, Guest: guest})
	}
	spec.Kept = len(spec.Mounts)
	p, err := driver.MakePlan(spec, h.shown, h.report, h.plan(sandbox.Limits{}).ID)
	if err != nil {
		h.Fatal(err)
	}
	if !h.driver.Abilities().Shows {
		if m, err := h.driver.Create(h.ctx, p); err == nil || sandbox.AsError(err).Hint == "" {
			h.Errorf("made %v, %v", m, err)
		}
		return
	}
	m := h.createFrom(p)
	b := &box{Machine: m, Guest: h.greet(m), h: h, plan: p, limits: p.Limits}
	r := b.run("/bin/sh", "-c", `
try() { ("$@") 2> /dev/null && echo "done: $*"; }
write() { echo x >> "$1"; }
for d in "$@"; do
	lines=0; while read -r word && [ "$word" = words ]; do lines=$((lines+1)); done < $d/below/words; echo "$lines lines"
	try write $d/below/words; try write $d/new; try write $d/below/new; try mkdir $d/dir; try rm $d/below/words
	try mv $d/below $d/above; try chmod 777 $d/below/words; try ln $d/below/words $HOME/link; try touch $d/below/words; try rmdir $d
done
cd && mkdir below && echo x > below/words && d=. && try write $d/below/words; try mkdir $d/dir; try mv $d/below $d/above; try chmod 777 $d/above/words; try ln $d/above/words link`, "sh", sandbox.PythonPackagesDir, sandbox.NPMPackagesDir)
	const sum, control = "10000 lines\n", "done: write ./below/words\ndone: mkdir ./dir\ndone: mv ./below ./above\ndone: chmod 777 ./above/words\ndone: ln ./above/words link\n"
	if r.out != sum+sum+control {
		h.Errorf("inside: %+v\n%s", r.Exit, r.out)
	}
	text, err := os.ReadFile(file)
	if found, _ := os.ReadDir(dir); err != nil || string(text) != words || len(found) != 1 {
		h.Errorf("on the host: %d bytes, %v, %v", len(text), err, found)
	}
}
