package build

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"pinfold/internal/image"
	"pinfold/internal/template"
	"pinfold/sandbox"
)

// Bounds on a declaration.
const (
	maxFiles    = 10_000
	maxPackages = 500
	maxCommands = 100
	maxPlaces   = 16
)

var (
	suiteName     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,40}$`)
	debianPackage = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,100}(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]{1,100})?$`)
	userName      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$`)
	// localName is a path below the declaration's directory.
	localName = regexp.MustCompile(`^[A-Za-z0-9_@+~.-]+(/[A-Za-z0-9_@+~.-]+)*$`)
)

// Validate checks what can be known without a base and without the files that it names.
func (d *Declaration) Validate() error {
	for _, check := range []func() error{d.checkName, d.checkBase, d.checkPackages, d.checkFiles, d.checkEnv, d.checkPlaces, d.checkCommands, d.checkStart} {
		if err := check(); err != nil {
			return err
		}
	}
	_, err := d.Limits.amounts()
	return err
}

func (d *Declaration) checkName() error {
	if d.Name == "" {
		return nil
	}
	if err := template.CheckName(d.Name); err != nil {
		return sandbox.AsError(err).WithField("name")
	}
	return nil
}

func (d *Declaration) checkBase() error {
	if b := d.Base.Debian; b != nil {
		if !suiteName.MatchString(b.Suite) {
			return invalid("base.debian.suite", "is not the name of one of Debian's suites").WithHint("write suite: bookworm")
		}
		if len(b.Packages) > maxPackages {
			return invalid("base.debian.packages", fmt.Sprintf("has more than %d packages", maxPackages))
		}
		for i, p := range b.Packages {
			if !debianPackage.MatchString(p) {
				return invalid(fmt.Sprintf("base.debian.packages[%d]", i), fmt.Sprintf("\"%s\" is not the name of a Debian package", sandbox.SafeText(p, 60))).
					WithHint("write names such as python3-numpy; files (.deb) stand in packages.debian")
			}
		}
		return nil
	}
	switch d.Base.Template {
	case "":
		return invalid("base", "is missing").WithHint("write base: NAME, a template that pinfold template list names, or base: {debian: {suite: bookworm, packages: [python3]}}")
	case sandbox.TemplateHost:
		return invalid("base", "the template host is this machine's own programs, which no image can hold").
			WithHint("write base: {debian: {suite: bookworm, packages: [python3]}}, or name an image: pinfold template list")
	}
	return nil
}

func (d *Declaration) checkPackages() error {
	for _, kind := range []struct {
		field, ending, hint string
		index               string // the kind of packages of indexes; "": there are none
		entries             []string
	}{
		{"packages.debian", debianFile, "name files beside the declaration; packages of Debian's stand in base.debian.packages", "", d.Packages.Debian},
		{"packages.python", pythonFile, "write NAME==VERSION, such as \"rich==13.9.4\", for a package of the operator's index, or the path of a .whl file beside the declaration", sandbox.PackagesPython, d.Packages.Python},
		{"packages.npm", npmFile, "write NAME@VERSION, such as \"left-pad@1.3.0\", for a package of the operator's index, or the path of a .tgz file beside the declaration", sandbox.PackagesNPM, d.Packages.Npm},
	} {
		if len(kind.entries) > maxPackages {
			return invalid(kind.field, fmt.Sprintf("has more than %d packages", maxPackages))
		}
		seen, named := map[string]bool{}, 0
		for i, text := range kind.entries {
			field, is := fmt.Sprintf("%s[%d]", kind.field, i), "file "+path.Base(text)
			if kind.index != "" && !strings.HasSuffix(text, kind.ending) {
				one, err := sandbox.ParsePackage(kind.index, text)
				if err != nil {
					return sandbox.AsError(err).WithField(field).WithHint(kind.hint)
				}
				if is, named = one.Name, named+1; named > sandbox.MaxPackages {
					return invalid(field, fmt.Sprintf("is one more than the %d packages of an index that can be named", sandbox.MaxPackages)).WithHint("what they need comes by itself")
				}
			} else if !isLocal(text) || !strings.HasSuffix(text, kind.ending) {
				return invalid(field, fmt.Sprintf("\"%s\" is not a %s file beside the declaration", sandbox.SafeText(text, 100), kind.ending)).WithHint(kind.hint)
			}
			if seen[is] {
				return invalid(field, fmt.Sprintf("\"%s\" stands there twice", sandbox.SafeText(text, 100))).WithHint("name each package once")
			}
			seen[is] = true
		}
	}
	return nil
}

// isLocal says whether a name is a path below the declaration's directory.
func isLocal(name string) bool {
	return localName.MatchString(name) && len(name) <= 1024 && path.Clean(name) == name && !within(name, "..")
}

func (d *Declaration) checkFiles() error {
	if len(d.Files) > maxFiles {
		return invalid("files", fmt.Sprintf("has more than %d files", maxFiles))
	}
	seen := map[string]bool{}
	for i, f := range d.Files {
		if err := f.check(); err != nil {
			return below(fmt.Sprintf("files[%d]", i), err)
		}
		if seen[f.Path] {
			return invalid(fmt.Sprintf("files[%d].path", i), fmt.Sprintf("\"%s\" stands there twice", sandbox.SafeText(f.Path, 100)))
		}
		seen[f.Path] = true
	}
	return nil
}

func (f PlacedFile) check() error {
	if f.Path == "/" || !isAbsolute(f.Path) {
		return invalid("path", fmt.Sprintf("\"%s\" is not the absolute path of a file in the template", sandbox.SafeText(f.Path, 100))).WithHint("write it like /etc/app.conf")
	}
	if within(f.Path, "/dev") || within(f.Path, "/proc") || within(f.Path, "/sys") || within(f.Path, "/run") || within(f.Path, "/tmp") {
		return invalid("path", "lies where every sandbox has something of its own, so nobody would see it").WithHint("put it below /usr/local, /opt or /etc")
	}
	contents := 0
	for _, there := range []bool{f.From != "", f.Content != nil, f.ContentBase64 != nil} {
		if there {
			contents++
		}
	}
	switch {
	case contents != 1:
		return invalid("content", "a file has exactly one of from, content and content_base64").WithHint("write from: FILE for one beside the declaration, or content: TEXT")
	case !canStand(f.Path):
		return invalid("path", "no file of a layer can have that name").WithHint("take one that does not begin with .wh.")
	case f.From != "" && !isLocal(f.From):
		return invalid("from", fmt.Sprintf("\"%s\" is not a file beside the declaration", sandbox.SafeText(f.From, 100))).WithHint("copy it there; names have letters, digits and . _ - + ~ @ /")
	case !slices.Contains([]string{"", "0644", "0755"}, f.Mode):
		return invalid("mode", "of a file's permissions a template keeps only whether it is a program").WithHint("write mode: \"0755\" for a program, or leave it out")
	}
	return nil
}

func isAbsolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= 1024 && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func (d *Declaration) checkEnv() error {
	for k, v := range d.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) || len(k)+len(v) > 32<<10 {
			return invalid("env", fmt.Sprintf("\"%s\" cannot be a variable's name, or its value is too long", sandbox.SafeText(k, 60))).WithHint("write NAME: text, with at most 32 KiB")
		}
		if k == "HOME" || k == "USER" || k == "LOGNAME" {
			return invalid("env."+k, "is the user's, whatever a template says").WithHint("leave it out")
		}
	}
	if d.User != "" && !userName.MatchString(d.User) {
		return invalid("user", fmt.Sprintf("\"%s\" is not the name or the number of a user", sandbox.SafeText(d.User, 60))).WithHint("write one of the base's /etc/passwd, or a number such as 1000")
	}
	return nil
}

func (d *Declaration) checkPlaces() error {
	if len(d.Writable) > maxPlaces {
		return invalid("writable", fmt.Sprintf("has more than %d directories", maxPlaces))
	}
	for i, w := range d.Writable {
		if !isAbsolute(w) || !image.CanBePlace(w) {
			return invalid(fmt.Sprintf("writable[%d]", i), fmt.Sprintf("\"%s\" cannot be written to while the template is built", sandbox.SafeText(w, 100))).
				WithHint("take a directory such as /app or /var/lib/app; /usr/local, /opt and /srv can be written to anyway, and files: puts single files anywhere")
		}
		for _, other := range d.Writable[:i] {
			if within(w, other) || within(other, w) {
				return invalid(fmt.Sprintf("writable[%d]", i), fmt.Sprintf("\"%s\" and \"%s\" lie in each other", w, other)).WithHint("name the outer one only")
			}
		}
		if slices.ContainsFunc(usualPlaces, func(p string) bool { return within(p, w) && p != w }) {
			return invalid(fmt.Sprintf("writable[%d]", i), fmt.Sprintf("\"%s\" holds directories that can be written to anyway", w)).WithHint("name those in it that are needed")
		}
	}
	if d.Workdir != "" && !isAbsolute(d.Workdir) {
		return invalid("workdir", "is not an absolute path").WithHint("write it like /opt/app")
	}
	return nil
}

func (d *Declaration) checkCommands() error {
	if len(d.Run) > maxCommands {
		return invalid("run", fmt.Sprintf("has more than %d commands", maxCommands))
	}
	for i, r := range d.Run {
		if strings.TrimSpace(r) == "" || len(r) > 64<<10 || strings.ContainsRune(r, 0) {
			return invalid(fmt.Sprintf("run[%d]", i), "is no line for a shell").WithHint("write a command, or leave it out")
		}
	}
	return nil
}

func (d *Declaration) checkStart() error {
	start, err := d.start()
	if err != nil {
		return err
	}
	return template.CheckStart(start)
}

// start is what living sandboxes of the template begin with.
func (d *Declaration) start() (image.Start, error) {
	a, err := d.Limits.amounts()
	s := image.Start{Command: d.Start, Ready: d.Ready, WithinMS: a.readyMS}
	if s.Ready != "" {
		s.WithinMS = cmp.Or(s.WithinMS, template.UsualReady.Milliseconds())
	}
	return s, err
}

// amounts are limits in numbers.
type amounts struct {
	timeMS, memory, disk int64
	readyMS              int64 // 0: the usual
}

// What a build may use where nothing else is said.
const (
	usualTimeMS = 15 * 60 * 1000
	usualMemory = 1 << 30
	usualDisk   = 2 << 30

	maxTimeMS = 6 * 60 * 60 * 1000
	mostBytes = 1 << 40
)

func (l Bounds) amounts() (a amounts, err error) {
	a = amounts{timeMS: usualTimeMS, memory: usualMemory, disk: usualDisk}
	for _, one := range []struct {
		field, text string
		parse       func(string) (int64, error)
		into        *int64
		least, most int64
		hint        string
	}{
		{"time", l.Time, sandbox.ParseTime, &a.timeMS, 1000, maxTimeMS, "write it like 15m"},
		{"memory", l.Memory, sandbox.ParseSize, &a.memory, 16 << 20, mostBytes, "write it like 1GiB"},
		{"disk", l.Disk, sandbox.ParseSize, &a.disk, 16 << 20, mostBytes, "write it like 2GiB; it is in the host's memory while the template is built"},
		{"ready", l.Ready, sandbox.ParseTime, &a.readyMS, 1, template.MaxReady.Milliseconds(), "write it like 1m, at most 10m"},
	} {
		if one.text == "" {
			continue
		}
		n, err := one.parse(one.text)
		if err != nil || n < one.least || n > one.most {
			e := &sandbox.Error{Code: sandbox.CodeLimitInvalid, Field: "limits." + one.field, Message: fmt.Sprintf("\"%s\" is no such limit, or is too low or too high", sandbox.SafeText(one.text, 40))}
			return a, e.WithHint(one.hint)
		}
		*one.into = n
	}
	return a, nil
}
