package initramfs

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Module is a kernel module.
type Module struct {
	Name string // as the kernel says it: with underscores
	File string
}

// maxList bounds what is read of modules.dep and modules.builtin, which have some 600 KB.
const maxList = 16 << 20

// ErrNoModule means that a kernel neither has a module nor can do without it.
var ErrNoModule = errors.New("the kernel has no such module")

// Modules returns the modules of those names and all that they need, each after what it
// needs. What is built into the kernel is left out. dir is the kernel's directory of
// modules, /lib/modules/RELEASE. Where depmod has not run there, as in a package that was
// only unpacked, the modules themselves say what they need.
func Modules(dir string, names ...string) ([]Module, error) {
	t := &tree{dir: dir, files: map[string]string{}, needs: map[string][]string{}, builtin: map[string]bool{}}
	if err := t.read(); err != nil {
		return nil, fmt.Errorf("look at the modules of %s: %w", dir, err)
	}
	var order []Module
	for _, n := range names {
		if err := t.add(&order, moduleName(n), nil); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// tree is a directory of modules.
type tree struct {
	dir     string
	files   map[string]string   // by name
	needs   map[string][]string // names by name; only where depmod has run
	builtin map[string]bool
}

// moduleName is a module's name by its file's.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func (t *tree) read() error {
	err := eachLine(filepath.Join(t.dir, "modules.builtin"), func(line string) { t.builtin[moduleName(line)] = true })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = eachLine(filepath.Join(t.dir, "modules.dep"), func(line string) {
		file, needs, ok := strings.Cut(line, ":")
		if !ok {
			return
		}
		name := moduleName(file)
		t.files[name], t.needs[name] = t.inside(file), []string{}
		for _, n := range strings.Fields(needs) {
			t.needs[name] = append(t.needs[name], moduleName(n))
		}
	})
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return filepath.WalkDir(filepath.Join(t.dir, "kernel"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(d.Name(), ".ko") {
			t.files[moduleName(path)] = path
		}
		return err
	})
}

// inside is the path of a file that modules.dep names, most often by one below its directory.
func (t *tree) inside(file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(t.dir, file)
}

// add adds a module after what it needs. above are the modules that need it.
func (t *tree) add(order *[]Module, name string, above []string) error {
	switch {
	case slices.Contains(above, name):
		return fmt.Errorf("module %s needs itself, by %s", name, strings.Join(above, ", "))
	case t.builtin[name] || slices.ContainsFunc(*order, func(m Module) bool { return m.Name == name }):
		return nil
	}
	file, ok := t.files[name]
	if !ok {
		return fmt.Errorf("%s below %s: %w", name, t.dir, ErrNoModule)
	}
	needs, known := t.needs[name]
	if !known {
		var err error
		if needs, err = moduleNeeds(file); err != nil {
			return fmt.Errorf("ask %s what it needs: %w", file, err)
		}
	}
	for _, n := range needs {
		if err := t.add(order, n, append(above, name)); err != nil {
			return err
		}
	}
	*order = append(*order, Module{name, file})
	return nil
}

// moduleNeeds reads what a module says of itself.
func moduleNeeds(file string) ([]string, error) {
	if filepath.Ext(file) != ".ko" {
		return nil, errors.New("it is compressed and there is no modules.dep: run depmod")
	}
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it is no kernel module")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	var needs []string
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok {
			for n := range strings.SplitSeq(list, ",") {
				if n != "" {
					needs = append(needs, moduleName(n))
				}
			}
		}
	}
	return needs, nil
}

// eachLine reads a text file of bounded size.
func eachLine(file string, f func(line string)) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	if st, err := in.Stat(); err != nil || st.Size() > maxList {
		return fmt.Errorf("%s is too large: %w", file, err)
	}
	s := bufio.NewScanner(in)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		f(s.Text())
	}
	return s.Err()
}
