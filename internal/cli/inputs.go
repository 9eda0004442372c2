package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"pinfold/internal/hostfiles"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

// programOf says where the program of a request lies.
func programOf(spec sandbox.Spec, host string) hostfiles.Program {
	p := hostfiles.Program{}
	if l, err := language.Find(spec.Language); err == nil && spec.Code != "" {
		p.Guest = l.File
	}
	if host != fromStdin {
		p.Info, _ = os.Stat(host) // without it, no file is taken for the same
	}
	return p
}

// collectInputs reads the --file flags, each HOST[:GUEST]. The caller closes what it
// returns after the run.
func collectInputs(flags []string, program hostfiles.Program, mounts []sandbox.Mount) (*hostfiles.Inputs, error) {
	layout, err := sandbox.NewLayout(program.Guest, mounts)
	if err != nil {
		return nil, err
	}
	files := make([]hostfiles.Input, len(flags))
	for i, flag := range flags {
		if files[i], err = splitFileFlag(flag); err != nil {
			return nil, prefixed("--file", err)
		}
	}
	in, err := hostfiles.Collect(files, program, layout)
	if err == nil {
		return in, nil
	}
	e := sandbox.AsError(err)
	if elsewhere, ok := e.Advice.Find(sandbox.FixCopy); ok {
		e = e.WithHint("copy it to another path: " + pasteable("--file HOST:GUEST", []string{"--file", elsewhere.Name}))
	} else if errors.Is(e, fs.ErrPermission) {
		e = e.WithHint("name a file that you may read")
	} else if e.Code == sandbox.CodeTooLarge {
		e = e.WithHint("show a large directory with --mount HOST:GUEST instead of copying it")
	}
	return nil, prefixed("--file", e)
}

// splitFileFlag splits HOST[:GUEST]. When the whole text names something that
// exists, it is HOST; otherwise the last colon separates. GUEST is relative to
// the working directory; empty means the last element of HOST.
func splitFileFlag(flag string) (in hostfiles.Input, err error) {
	host, guest := flag, ""
	if _, statErr := os.Lstat(flag); statErr != nil {
		if i := strings.LastIndexByte(flag, ':'); i >= 0 {
			host, guest = flag[:i], flag[i+1:]
		}
	}
	if host == "" || strings.IndexByte(host, 0) >= 0 {
		return in, usageError(`"%s" names no file`, sandbox.SafeText(flag, 80))
	}
	guest = strings.TrimPrefix(guest, sandbox.Home+"/")
	guest = cmp.Or(guest, filepath.Base(host))
	if guest == ".." || guest == "/" { // HOST was ../.. or /
		return in, usageError("%s needs a name inside", sandbox.SafeText(host, 80)).
			WithHint(fmt.Sprintf("write --file %s:data", sandbox.SafeText(host, 80)))
	}
	guest = strings.TrimSuffix(guest, "/")
	if guest != "." {
		err = sandbox.CheckGuestPath("files", guest)
	}
	return hostfiles.Input{Host: host, Guest: guest}, err
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
		return sandbox.Mount{}, prefixed("--mount", hostfiles.OpenError(text[:i], err))
	}
	if _, err := os.Stat(host); err != nil {
		return sandbox.Mount{}, prefixed("--mount", hostfiles.OpenError(text[:i], err))
	}
	return sandbox.Mount{Host: host, Guest: path.Clean(text[i+1:]), Writable: writable}, nil
}

// inFile is prefixed for what is wrong in a file: the fields of it are part of the message.
func inFile(flag, name string, err error) error {
	if name == fromStdin {
		name = "stdin"
	}
	e := *sandbox.AsError(err)
	e.Message = flag + ": " + sandbox.SafeText(name, 80) + ": " + e.Error()
	return &e
}

// prefixed puts the flag's name before an error's message.
func prefixed(flag string, err error) error {
	e := *sandbox.AsError(err)
	e.Message = flag + ": " + e.Message
	return &e
}
