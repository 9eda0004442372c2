package build

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"pinfold/internal/template"
	"pinfold/sandbox"
)

// Where in a sandbox a step finds what is to be installed, and where npm installs for
// everybody.
const (
	packagesDir = "/tmp/pinfold-packages"
	nodeModules = "/usr/local/lib/node_modules"
)

// stepDriver makes the sandboxes of builds: others make a copy of an image, and one that
// is lent is used once.
const stepDriver = "native"

// Limits of a build's sandbox that a declaration does not set.
const (
	boxInodes    = 400_000
	boxProcesses = 256
	boxOpenFiles = 1024 // what every host allows a process
)

// stepEnv makes what steps make the same each time, and keeps installers from looking for
// a network.
var stepEnv = map[string]string{
	"SOURCE_DATE_EPOCH":             strconv.Itoa(epoch), // Python then compiles to files that go by the source's content
	"PYTHONHASHSEED":                "0",
	"PYTHONDONTWRITEBYTECODE":       "1",
	"PIP_NO_INDEX":                  "1",
	"PIP_USER":                      "0",
	"PIP_NO_CACHE_DIR":              "1",
	"PIP_BREAK_SYSTEM_PACKAGES":     "1", // there is no system to break but this image
	"PIP_DISABLE_PIP_VERSION_CHECK": "1",
	"npm_config_offline":            "true",
	"npm_config_audit":              "false",
	"npm_config_fund":               "false",
	"npm_config_update_notifier":    "false",
	"npm_config_cache":              "/tmp/npm",
	"npm_config_prefix":             "/usr/local",
	"npm_config_loglevel":           "error",
}

// stepping is the sandbox in which steps run.
type stepping struct {
	*building

	box Sandbox
	use *template.Use
}

// inSandbox makes a sandbox of the image, in which the declaration's places can be written
// to, for as long as do goes on.
func (b *building) inSandbox(ctx context.Context, image template.Image, do func(*stepping) error) error {
	return b.lent(image, func(u *template.Use) (err error) {
		if err := b.checkPlaces(u); err != nil {
			return err
		}
		box, err := b.boxes.Create(ctx, sandbox.Create{
			Template: string(u.Template.Image.ID), Driver: stepDriver, Env: stepEnv, TTLMS: min(sandbox.MaxTTLMS, b.limits.timeMS*int64(b.event.Of+2)),
			Limits: sandbox.Limits{
				MemoryBytes: b.limits.memory, DiskBytes: b.limits.disk, FileSizeBytes: b.limits.disk, Inodes: boxInodes,
				Processes: boxProcesses, OpenFiles: boxOpenFiles,
			},
		})
		if err != nil {
			return b.noSandbox(err)
		}
		defer func() {
			if _, destroyErr := box.Destroy(context.WithoutCancel(ctx)); err == nil {
				err = destroyErr
			}
		}()
		return do(&stepping{b, box, u})
	})
}

// noSandbox says in the declaration's words why there is no sandbox.
func (b *building) noSandbox(err error) error {
	e := sandbox.AsError(err)
	field := map[string]string{"template": "base", "limits.memory_bytes": "limits.memory", "limits.disk_bytes": "limits.disk", "limits.file_size_bytes": "limits.disk", "ttl_ms": "limits.time"}[e.Field]
	switch {
	case field == "":
		return err
	case field == "base" && b.d.User != "": // nothing else of an image that is here is refused
		field = "user"
	}
	return e.WithField(field)
}

// checkPlaces refuses a declared place that the image has as something else.
func (b *building) checkPlaces(u *template.Use) error {
	for _, p := range b.d.Places() {
		if err := checkWay(u, p); err != nil {
			return below("writable", err)
		}
	}
	return nil
}

// exec runs a step's command. Its failure is the build's.
func (s *stepping) exec(ctx context.Context, field string, c sandbox.Command, stdin io.Reader, stdout io.Writer) error {
	said := &tail{to: s.output}
	both := &synced{w: said}
	if stdout == nil {
		stdout = both
	}
	c.WallTimeMS = s.limits.timeMS
	p, err := s.box.Exec(ctx, c, stdin, stdout, both)
	if err != nil {
		if e := sandbox.AsError(err); e.Code == sandbox.CodeCommandNotFound && len(c.Args) > 0 {
			return s.lacks(field, c.Args[0])
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if p.Status == sandbox.StatusSucceeded {
		return nil
	}
	why := "it was ended"
	switch {
	case p.Cause != nil && p.Cause.Kind != sandbox.CauseExited && p.Cause.Kind != sandbox.CauseSignaled:
		why = fmt.Sprintf("it was ended by the limit %s (%s)", p.Cause.Kind, p.Cause.Evidence)
	case p.ExitCode != nil:
		why = "exit status " + strconv.Itoa(*p.ExitCode)
	case p.Signal != "":
		why = "it ended by " + p.Signal
	}
	return s.stepError(errors.New(why), field, said)
}

// lacks says what the base must have for a step.
func (s *stepping) lacks(field, program string) error {
	hint := map[string]string{
		"python3": "take a base with Python and pip; of Debian's packages that is python3-pip", "npm": "take a base with npm; of Debian's packages that is npm",
		"tar": "take a base with tar", "dpkg-deb": "take a base of Debian's or Ubuntu's",
	}[program]
	e := &sandbox.Error{Code: sandbox.CodeBuildFailed, Field: field, Message: fmt.Sprintf("step %d of %d failed: the base has no program %s", s.event.Number, s.event.Of, sandbox.SafeText(program, 60))}
	return e.WithHint(cmp.Or(hint, "take a base that has it"))
}

// send puts packages into the sandbox and returns their paths there.
func (s *stepping) send(ctx context.Context, packages []input) (paths []string, err error) {
	for _, p := range packages {
		to := path.Join(packagesDir, p.path)
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(p.send(w)) }()
		err := s.box.WriteFile(ctx, to, 0o644, p.size, r)
		_ = r.Close()
		if err != nil {
			return nil, err
		}
		paths = append(paths, to)
	}
	return paths, nil
}

// runSteps installs packages and runs commands, and adds what changed as a layer.
func (b *building) runSteps(ctx context.Context, image template.Image) (template.Image, error) {
	if !b.d.runsAnything() {
		return image, b.checkUser(image)
	}
	var out template.Image
	err := b.inSandbox(ctx, image, func(s *stepping) error {
		base, err := s.fill(ctx)
		if err != nil {
			return err
		}
		if err := s.install(ctx); err != nil {
			return err
		}
		if err := s.commands(ctx, image.Config.WorkingDir); err != nil {
			return err
		}
		b.step("layer", "keep what changed")
		out, err = s.keepChanges(ctx, image, base)
		return err
	})
	return out, err
}

// checkUser says whether sandboxes of the image could be made.
func (b *building) checkUser(image template.Image) error {
	return b.lent(image, func(u *template.Use) error {
		if _, err := b.store.Resolve(string(u.Template.Image.ID), nil); err != nil {
			return b.noSandbox(err)
		}
		return nil
	})
}

// fill gives the places the content that the image has there, and returns what that is.
func (s *stepping) fill(ctx context.Context) (map[string]held, error) {
	r, w := io.Pipe()
	type answer struct {
		base map[string]held
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		t := tar.NewWriter(w)
		base, err := s.packPlaces(ctx, t)
		if err == nil {
			err = t.Close()
		}
		_ = w.CloseWithError(err)
		done <- answer{base, err}
	}()
	err := s.exec(ctx, "base", sandbox.Command{Args: []string{"tar", "-x", "-f", "-", "-C", "/"}}, r, nil)
	_ = r.Close()
	a := <-done
	if err != nil {
		return nil, err
	}
	if a.err != nil && !errors.Is(a.err, io.ErrClosedPipe) {
		return nil, a.err
	}
	return a.base, nil
}

// install installs the declaration's packages for Python and Node.
func (s *stepping) install(ctx context.Context) error {
	for _, kind := range []struct {
		field, says string
		packages    []input
		command     []string
	}{
		{"packages.python", "install wheels", s.in.wheels, []string{"python3", "-m", "pip", "install", "--no-index", "--find-links", packagesDir, "--no-warn-script-location"}},
		{"packages.npm", "install npm packages", s.in.npm, []string{"npm", "install", "--global", "--offline"}},
	} {
		if len(kind.packages) == 0 {
			continue
		}
		s.step(kind.field, kind.says)
		files, err := s.send(ctx, kind.packages)
		if err != nil {
			return err
		}
		if err := s.exec(ctx, kind.field, sandbox.Command{Args: append(kind.command, files...)}, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// commands runs the declaration's, in a directory of the image, which is made if it is the
// declaration that names it.
func (s *stepping) commands(ctx context.Context, dir string) error {
	if s.d.Workdir != "" && len(s.d.Run) > 0 {
		if err := s.exec(ctx, "workdir", sandbox.Command{Args: []string{"mkdir", "-p", dir}}, nil, nil); err != nil {
			return err
		}
	}
	for i, line := range s.d.Run {
		field := fmt.Sprintf("run[%d]", i)
		first, _, _ := strings.Cut(line, "\n")
		s.step(field, "run "+sandbox.SafeText(first, 100))
		if err := s.exec(ctx, field, sandbox.Command{Args: []string{"/bin/sh", "-e", "-c", line}, Dir: dir}, nil, nil); err != nil {
			return err
		}
	}
	return nil
}
