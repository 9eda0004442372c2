package initramfs

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// Where a machine's first process finds what Write has put there.
const (
	ModulesDir = "/modules" // files whose names are in the order in which they are loaded
	InitFile   = "/init"
)

// maxModule bounds one module; the largest of Debian's have 4 MB.
const maxModule = 64 << 20

// Tree is what a machine starts with.
type Tree struct {
	Modules  []Module
	Programs map[string][]byte // executables by their absolute paths, InitFile among them
}

// Write writes the tree as an archive that the kernel unpacks.
func (t Tree) Write(w io.Writer) error {
	a := NewArchive(w)
	for _, dir := range []string{"dev", "proc", "sys", "root", ModulesDir[1:]} {
		if err := a.Add(Entry{Name: dir, Mode: TypeDir | 0o755}); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Programs)) {
		program := t.Programs[name]
		if err := a.Add(Entry{Name: name[1:], Mode: TypeFile | 0o755, Size: int64(len(program)), Content: bytes.NewReader(program)}); err != nil {
			return err
		}
	}
	for i, m := range t.Modules {
		if err := addModule(a, i, m); err != nil {
			return err
		}
	}
	return a.Close()
}

func addModule(a *Archive, number int, m Module) error {
	f, err := os.Open(m.File)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxModule {
		return fmt.Errorf("%s is no kernel module: it has %d bytes", m.File, st.Size())
	}
	name := path.Join(ModulesDir, fmt.Sprintf("%02d-%s", number, filepath.Base(m.File)))
	return a.Add(Entry{Name: name[1:], Mode: TypeFile | 0o644, Size: st.Size(), Content: f})
}
