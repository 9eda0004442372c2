package cli

import (
	"io"
	"os"

	"pinfold/internal/hostfiles"
	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// maxSpecBytes bounds a --spec file: code, stdin and files, escaped.
const maxSpecBytes = 256 << 20

// fromStdin is the file name that means our own stdin.
const fromStdin = "-"

// readBounded reads what a person named, from our stdin or a file, and stops
// at the limit: how long the rest is does not matter.
func (a *app) readBounded(name string, limit int64) ([]byte, error) {
	var r io.Reader = a.Stdin
	if name != fromStdin {
		f, err := hostfiles.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only read
		if info, err := f.Stat(); err == nil && info.Size() > limit {
			return nil, tooLong(name, limit)
		}
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, hostfiles.OpenError(name, err)
	}
	if int64(len(data)) > limit {
		return nil, tooLong(name, limit)
	}
	return data, nil
}

func tooLong(name string, limit int64) *sandbox.Error {
	if name == fromStdin {
		name = "stdin"
	}
	return hostfiles.PathError(sandbox.CodeTooLarge, name, "is larger than "+sandbox.FormatSize(limit))
}

// buildSpec puts the request together: the --spec file, the flags over it, the
// program and its arguments.
func (a *app) buildSpec(f *runFlags, program string, args []string) (sandbox.Spec, error) {
	var spec sandbox.Spec
	if f.spec != "" {
		if err := a.readSpec(f.spec, &spec); err != nil {
			return spec, err
		}
	}
	f.override(&spec)
	if err := a.addGate(f, &spec); err != nil {
		return spec, err
	}
	if len(args) > 0 {
		spec.Args = args
	}
	if program != "" {
		if err := a.readProgram(&spec, program); err != nil {
			return spec, err
		}
	}
	if err := resolveLanguage(&spec, program); err != nil {
		return spec, err
	}
	var err error
	if spec.Mounts, err = parseMounts(f.mounts); err != nil {
		return spec, err
	}
	return spec, spec.Validate()
}

func (a *app) readSpec(name string, spec *sandbox.Spec) error {
	data, err := a.readBounded(name, maxSpecBytes)
	if err != nil {
		return prefixed("--spec", err)
	}
	if err := strictjson.Decode(data, spec); err != nil {
		return inFile("--spec", name, err)
	}
	return nil
}

func (a *app) readProgram(spec *sandbox.Spec, name string) error {
	code, err := a.readBounded(name, sandbox.MaxCodeBytes)
	if err != nil {
		e := sandbox.AsError(err)
		switch e.Code {
		case sandbox.CodeNotRegularFile:
			e = e.WithHint("a program is one file; copy a directory in with --file " + sandbox.SafeText(name, 80))
		case sandbox.CodeTooLarge:
			e = e.WithHint("copy large data in with --file and read it from the program")
		}
		return e
	}
	if len(code) == 0 {
		if name == fromStdin {
			name = "stdin"
		}
		return hostfiles.PathError(sandbox.CodeSpecInvalid, name, "is empty: there is no program to run")
	}
	spec.Code, spec.Entrypoint = string(code), ""
	return nil
}

// looksLikeFile says whether the name is that of an existing file.
func looksLikeFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// checkStdin makes sure that our stdin is read for one purpose only.
func checkStdin(f *runFlags, program string) error {
	var users []string
	for _, u := range []struct{ value, name string }{
		{program, "the program (FILE is -)"}, {f.stdin, "--stdin -"}, {f.spec, "--spec -"},
	} {
		if u.value == fromStdin {
			users = append(users, u.name)
		}
	}
	if len(users) < 2 {
		return nil
	}
	e := usageError("stdin cannot be both %s and %s", users[0], users[1])
	e.Hint = "put one of them into a file"
	return e
}
