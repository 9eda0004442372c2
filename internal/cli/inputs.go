package cli

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"pinfold/internal/engine/runs"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

// inputs lists what the --file flags copy into the sandbox. Content is opened
// only when it is copied. The caller closes it after the run.
type inputs struct {
	list    []runs.Input
	from    []flagged // of each
	roots   []*os.Root
	layout  *sandbox.Layout
	program programFile

	adding flagged
}

// flagged is what a flag names on the host.
type flagged struct {
	host string
	tree bool // it is a directory
}

// programFile is the program that was named, and where it will lie inside.
type programFile struct {
	guest string      // "" when it is one of the files that are copied in
	info  fs.FileInfo // nil when it comes from stdin or a request
}

// programOf says where the program of a request lies.
func programOf(spec sandbox.Spec, host string) programFile {
	p := programFile{}
	if l, err := language.Find(spec.Language); err == nil && spec.Code != "" {
		p.guest = l.File
	}
	if host != fromStdin {
		p.info, _ = os.Stat(host) // without it, no file is taken for the same
	}
	return p
}

// collectInputs reads the --file flags, each HOST[:GUEST].
func collectInputs(flags []string, program programFile, mounts []sandbox.Mount) (*inputs, error) {
	layout, err := sandbox.NewLayout(program.guest, mounts)
	if err != nil {
		return nil, err
	}
	in := &inputs{layout: layout, program: program}
	for _, flag := range flags {
		if err := in.add(flag); err != nil {
			in.close()
			return nil, err
		}
	}
	if which, err := layout.Check(); err != nil {
		in.close()
		return nil, program.explain(err, in.list[which].Path, in.from[which])
	}
	return in, nil
}

func (in *inputs) close() {
	for _, r := range in.roots {
		_ = r.Close() // only read from
	}
}

func (in *inputs) add(flag string) error {
	host, guest, err := splitFileFlag(flag)
	if err != nil {
		return err
	}
	info, err := os.Stat(host) // a link that the person names is followed
	if err != nil {
		return prefixed("--file", openError(host, err))
	}
	in.adding = flagged{host, info.IsDir()}
	switch {
	case info.IsDir():
		return in.addTree(host, guest)
	case !info.Mode().IsRegular():
		return prefixed("--file", pathError(sandbox.CodeNotRegularFile, host, "is neither a file nor a directory"))
	}
	return in.append(guest, info, func() (io.ReadCloser, error) { return os.Open(host) })
}

// splitFileFlag splits HOST[:GUEST]. When the whole text names something that
// exists, it is HOST; otherwise the last colon separates. GUEST is relative to
// the working directory; empty means the last element of HOST.
func splitFileFlag(flag string) (host, guest string, err error) {
	host = flag
	if _, statErr := os.Lstat(flag); statErr != nil {
		if i := strings.LastIndexByte(flag, ':'); i >= 0 {
			host, guest = flag[:i], flag[i+1:]
		}
	}
	if host == "" || strings.IndexByte(host, 0) >= 0 {
		return "", "", usageError(`--file: "%s" names no file`, sandbox.SafeText(flag, 80))
	}
	guest = strings.TrimPrefix(guest, sandbox.Home+"/")
	if guest == "" {
		guest = filepath.Base(host)
	}
	if guest == ".." || guest == "/" { // HOST was ../.. or /
		return "", "", usageError("--file: %s needs a name inside", sandbox.SafeText(host, 80)).
			WithHint(fmt.Sprintf("write --file %s:data", sandbox.SafeText(host, 80)))
	}
	guest = strings.TrimSuffix(guest, "/")
	if guest == "." {
		return host, guest, nil
	}
	if err := sandbox.CheckGuestPath("files", guest); err != nil {
		return "", "", prefixed("--file", err)
	}
	return host, guest, nil
}

// addTree adds a directory and everything below it. Inside, a symbolic link to
// a regular file of the same directory is copied as that file; every other
// link, device, pipe or socket is an error, because leaving it out silently
// would change what the program sees.
func (in *inputs) addTree(host, guest string) error {
	root, err := os.OpenRoot(host)
	if err != nil {
		return prefixed("--file", openError(host, err))
	}
	in.roots = append(in.roots, root)
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		full := filepath.Join(host, name)
		if err != nil {
			return prefixed("--file", openError(full, err))
		}
		to := path.Join(guest, name)
		if to == "." {
			return nil
		}
		if err := sandbox.CheckGuestPath("files", to); err != nil {
			return prefixed("--file", err)
		}
		info, err := entry.Info()
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if info, err = root.Stat(name); err == nil && !info.Mode().IsRegular() {
				return prefixed("--file", pathError(sandbox.CodeNotRegularFile, full, "is a link to something other than a file"))
			}
		}
		switch {
		case err != nil:
			return prefixed("--file", pathError(sandbox.CodeNotRegularFile, full, "is a link that leads nowhere or out of the directory"))
		case !info.IsDir() && !info.Mode().IsRegular():
			return prefixed("--file", pathError(sandbox.CodeNotRegularFile, full, "is neither a file nor a directory"))
		}
		return in.append(to, info, func() (io.ReadCloser, error) { return root.Open(name) })
	})
}

func (in *inputs) append(guest string, info fs.FileInfo, open func() (io.ReadCloser, error)) error {
	if guest == in.program.guest && in.program.info != nil && os.SameFile(info, in.program.info) {
		return nil // it lies there already
	}
	if len(in.list) == sandbox.MaxFiles {
		return prefixed("--file", &sandbox.Error{
			Code: sandbox.CodeTooLarge, Message: fmt.Sprintf("more than %d files", sandbox.MaxFiles),
			Hint: "show a large directory with --mount HOST:GUEST instead of copying it",
		})
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
	in.list, in.from = append(in.list, input), append(in.from, in.adding)
	return nil
}

// explain says what to type instead of a --file that would have replaced the
// program.
func (p programFile) explain(err error, guest string, from flagged) error {
	e := sandbox.AsError(err).WithField("") // the flag is named
	top, _, _ := strings.Cut(guest, "/")
	if p.guest == "" || top != p.guest {
		return prefixed("--file", e)
	}
	other := "other" + path.Ext(top)
	if full, err := filepath.Abs(from.host); from.tree && err == nil {
		other = filepath.Base(full)
	}
	return prefixed("--file", e.WithHint("copy it to another path: "+pasteable("--file HOST:GUEST", []string{"--file", from.host + ":" + other})))
}

// parseMounts reads the --mount flags, each HOST:GUEST[:ro|rw].
func parseMounts(flags []string) ([]sandbox.Mount, error) {
	var mounts []sandbox.Mount
	for _, flag := range flags {
		m, err := parseMount(flag)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

func parseMount(flag string) (sandbox.Mount, error) {
	text, writable := flag, false
	if rest, ok := strings.CutSuffix(text, ":rw"); ok {
		text, writable = rest, true
	} else {
		text = strings.TrimSuffix(text, ":ro")
	}
	i := strings.LastIndexByte(text, ':')
	if i <= 0 || !path.IsAbs(text[i+1:]) {
		e := usageError(`--mount: "%s" is not HOST:GUEST[:ro|rw] with an absolute GUEST`, sandbox.SafeText(flag, 120))
		return sandbox.Mount{}, e.WithHint("write --mount ./data:/data or --mount ./out:/home/user/out:rw")
	}
	host, err := filepath.Abs(text[:i])
	if err != nil {
		return sandbox.Mount{}, prefixed("--mount", openError(text[:i], err))
	}
	if _, err := os.Stat(host); err != nil {
		return sandbox.Mount{}, prefixed("--mount", openError(text[:i], err))
	}
	return sandbox.Mount{Host: host, Guest: path.Clean(text[i+1:]), Writable: writable}, nil
}

// prefixed puts the flag's name before an error's message.
func prefixed(flag string, err error) error {
	e := *sandbox.AsError(err)
	e.Message = flag + ": " + e.Message
	return &e
}
