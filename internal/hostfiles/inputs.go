package hostfiles

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Inputs are files and directories that are copied into a sandbox. A file is opened
// only when it is copied.
type Inputs struct {
	List []runs.Input

	from    []Input // of each of the list
	roots   []*os.Root
	layout  *sandbox.Layout
	program Program
	adding  Input
}

// Input is a file or directory of the host, and where it goes inside, relative to the
// home directory.
type Input struct {
	Host, Guest string
	tree        bool // it is a directory
}

// Program is the program that is run, and where it will lie inside.
type Program struct {
	Guest string      // "" when it is one of the files that are copied in
	Info  fs.FileInfo // nil when it is no file of this machine
}

// Collect looks at everything that is to be copied in. layout has what lies inside
// already. Whoever has the inputs closes them after the run. An error of a file that
// would replace the program has the advice to copy it elsewhere.
func Collect(files []Input, program Program, layout *sandbox.Layout) (*Inputs, error) {
	in := &Inputs{layout: layout, program: program}
	for _, file := range files {
		if err := in.add(file); err != nil {
			in.Close()
			return nil, err
		}
	}
	if which, err := layout.Check(); err != nil {
		in.Close()
		return nil, program.explain(err, in.List[which].Path, in.from[which])
	}
	return in, nil
}

// Close closes the directories.
func (in *Inputs) Close() {
	for _, r := range in.roots {
		_ = r.Close() // only read from
	}
}

func (in *Inputs) add(file Input) error {
	info, err := os.Stat(file.Host) // a link that the person names is followed
	if err != nil {
		return OpenError(file.Host, err)
	}
	file.tree = info.IsDir()
	in.adding = file
	switch {
	case file.tree:
		return in.addTree(file.Host, file.Guest)
	case !info.Mode().IsRegular():
		return PathError(sandbox.CodeNotRegularFile, file.Host, "is neither a file nor a directory")
	}
	f, err := os.Open(file.Host) // so that it is said now that it cannot be read
	if err != nil {
		return OpenError(file.Host, err)
	}
	_ = f.Close() // only opened
	return in.append(file.Guest, info, func() (io.ReadCloser, error) { return os.Open(file.Host) })
}

// addTree adds a directory and everything below it. Inside, a symbolic link to
// a regular file of the same directory is copied as that file; every other
// link, device, pipe or socket is an error, because leaving it out silently
// would change what the program sees.
func (in *Inputs) addTree(host, guest string) error {
	root, err := os.OpenRoot(host)
	if err != nil {
		return OpenError(host, err)
	}
	in.roots = append(in.roots, root)
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		full := filepath.Join(host, name)
		if err != nil {
			return OpenError(full, err)
		}
		to := path.Join(guest, name)
		if to == "." {
			return nil
		}
		if err := sandbox.CheckGuestPath("files", to); err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if info, err = root.Stat(name); err == nil && !info.Mode().IsRegular() {
				return PathError(sandbox.CodeNotRegularFile, full, "is a link to something other than a file")
			}
		}
		switch {
		case err != nil:
			return PathError(sandbox.CodeNotRegularFile, full, "is a link that leads nowhere or out of the directory")
		case !info.IsDir() && !info.Mode().IsRegular():
			return PathError(sandbox.CodeNotRegularFile, full, "is neither a file nor a directory")
		}
		return in.append(to, info, func() (io.ReadCloser, error) { return root.Open(name) })
	})
}

func (in *Inputs) append(guest string, info fs.FileInfo, open func() (io.ReadCloser, error)) error {
	if guest == in.program.Guest && in.program.Info != nil && os.SameFile(info, in.program.Info) {
		return nil // it lies there already
	}
	if len(in.List) == sandbox.MaxFiles {
		return &sandbox.Error{Code: sandbox.CodeTooLarge, Message: fmt.Sprintf("more than %d files", sandbox.MaxFiles)}
	}
	add := in.layout.AddFile
	if info.IsDir() {
		add = in.layout.AddDir
	}
	if err := add("files", guest); err != nil {
		return in.program.explain(err, guest, in.adding)
	}
	input := runs.Input{Path: guest, Mode: uint32(info.Mode().Perm() & 0o755), Dir: info.IsDir()}
	if !input.Dir {
		input.Size, input.Open = info.Size(), open
	}
	in.List, in.from = append(in.List, input), append(in.from, in.adding)
	return nil
}

// explain says where else to copy what would have replaced the program.
func (p Program) explain(err error, guest string, from Input) error {
	e := sandbox.AsError(err).WithField("") // the caller has a name for it
	top, _, _ := strings.Cut(guest, "/")
	if p.Guest == "" || top != p.Guest {
		return e
	}
	other := "other" + path.Ext(top)
	if full, err := filepath.Abs(from.Host); from.tree && err == nil {
		other = filepath.Base(full)
	}
	return e.WithAdvice(sandbox.Advise("copy it to another path: %s", sandbox.Copy(from.Host+":"+other)))
}
