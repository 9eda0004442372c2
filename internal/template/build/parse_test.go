package build

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pinfold/sandbox"
)

// Whatever is wrong with a declaration is an error that names the field and says what to do.
func TestParseRefuses(t *testing.T) {
	const base = "base: tools\n"
	for text, want := range map[string]string{
		"":                         "",
		"- base":                   "",
		"base: [tools":             "",
		base + "---\n" + base:      "",
		"base: &a tools\nname: *a": "",
		"base: !x tools":           "",
		base + "bse: tools":        "bse",
		base + base:                "",
		"name: t":                  "base",
		"base: host":               "base",
		"base: {template: a, debian: {suite: bookworm}}":                         "base",
		"base: {debian: {}}":                                                     "base.debian.suite",
		"base: {debian: {suite: '--help'}}":                                      "base.debian.suite",
		"base: {debian: {suite: bookworm, pkgs: [a]}}":                           "base.debian.pkgs",
		"base: {debian: {suite: bookworm, packages: ['--setup-hook=sh']}}":       "base.debian.packages[0]",
		"base: {debian: {suite: bookworm, packages: ['a,b']}}":                   "base.debian.packages[0]",
		"base: {debian: {suite: bookworm, packages: ['./x.deb']}}":               "base.debian.packages[0]",
		base + "name: Größe":                                                     "name",
		base + "name: host":                                                      "name",
		base + "packages: {python: [requests]}":                                  "packages.python[0]",
		base + "packages: {python: ['../x.whl']}":                                "packages.python[0]",
		base + "packages: {python: ['/x.whl']}":                                  "packages.python[0]",
		base + "packages: {python: [a/x.whl, b/x.whl]}":                          "packages.python[1]",
		base + "packages: {npm: ['-g.whl']}":                                     "packages.npm[0]",
		base + "packages: {debian: [python3]}":                                   "packages.debian[0]",
		base + "packages: {ruby: [x.gem]}":                                       "packages.ruby",
		base + "files: [{path: etc/x, content: a}]":                              "files[0].path",
		base + "files: [{path: /etc/../x, content: a}]":                          "files[0].path",
		base + "files: [{path: /proc/x, content: a}]":                            "files[0].path",
		base + "files: [{path: /etc/x}]":                                         "files[0].content",
		base + "files: [{path: /etc/x, content: a, from: b}]":                    "files[0].content",
		base + "files: [{path: /etc/x, from: ../b}]":                             "files[0].from",
		base + "files: [{path: /etc/x, content: a, mode: '4755'}]":               "files[0].mode",
		base + "files: [{path: /etc/x, content: a, mode: 0755}]":                 "files[0].mode",
		base + "files: [{path: /etc/x, content: a}, {path: /etc/x, content: b}]": "files[1].path",
		base + "env: {HOME: /x}":                                                 "env.HOME",
		base + "env: {'A=B': x}":                                                 "env",
		base + "env: {A: 1}":                                                     "env.A",
		base + "user: 'a b'":                                                     "user",
		base + "workdir: app":                                                    "workdir",
		base + "writable: [/usr]":                                                "writable[0]",
		base + "writable: [/etc]":                                                "writable[0]",
		base + "writable: [/]":                                                   "writable[0]",
		base + "writable: [/tmp/x]":                                              "writable[0]",
		base + "writable: [/a, /a/b]":                                            "writable[1]",
		base + "run: ['']":                                                       "run[0]",
		base + "run: make":                                                       "run",
		base + "start: ' '":                                                      "start",
		base + "ready: curl":                                                     "ready",
		base + "start: [app]":                                                    "start",
		base + "start: app\nready: ' '":                                          "ready",
		base + "start: app\nlimits: {ready: 1m}":                                 "limits.ready",
		base + "start: app\nready: a\nlimits: {ready: 2h}":                       "limits.ready",
		base + "start: app\nready: a\nlimits: {ready: 0s}":                       "limits.ready",
		base + "start: app\nready: a\nlimits: {ready: 60}":                       "limits.ready",
		base + "limits: {time: 0s}":                                              "limits.time",
		base + "limits: {disk: lots}":                                            "limits.disk",
		base + "limits: {cpus: 2}":                                               "limits.cpus",
	} {
		_, err := Parse([]byte(text))
		e := sandbox.AsError(err)
		if err == nil || e.Code == sandbox.CodeInternal || e.Field != want {
			t.Errorf("%q: field %q, want %q: %v", text, fieldOf(err), want, err)
			continue
		}
		if e.Hint == "" && !strings.Contains(e.Message, "must be") && !strings.Contains(e.Message, "twice") {
			t.Errorf("%q: no hint: %v", text, err)
		}
	}
	if _, err := Parse(make([]byte, MaxDeclaration+1)); sandbox.AsError(err).Code != sandbox.CodeTooLarge {
		t.Errorf("one that is too large: %v", err)
	}
}

func fieldOf(err error) string {
	if err == nil {
		return "(no error)"
	}
	return sandbox.AsError(err).Field
}

// The same in YAML and in JSON.
func TestParse(t *testing.T) {
	yaml := "name: data\nbase: {debian: {suite: bookworm, packages: [python3]}}\nfiles: [{path: /etc/x, content: \"a\\n\"}]\nenv: {A: b}\nrun: [make]\nwritable: [/app]\nlimits: {time: 10m}\n"
	json := `{"name": "data", "base": {"debian": {"suite": "bookworm", "packages": ["python3"]}}, "files": [{"path": "/etc/x", "content": "a\n"}], "env": {"A": "b"}, "run": ["make"], "writable": ["/app"], "limits": {"time": "10m"}}`
	for _, text := range []string{yaml, json} {
		d, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if d.Name != "data" || d.Base.Debian.Suite != "bookworm" || *d.Files[0].Content != "a\n" || d.Env["A"] != "b" || !slices.Equal(d.Places(), []string{"/app", "/opt", "/srv", "/usr/local"}) {
			t.Errorf("%+v", d)
		}
		if a, err := d.Limits.amounts(); err != nil || a.timeMS != 600_000 || a.disk != usualDisk {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if d, err := Parse([]byte("base: other")); err != nil || d.Base.Template != "other" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestShipped(t *testing.T) {
	if names := ShippedNames(); !slices.Equal(names, []string{"node", "python"}) {
		t.Errorf("%q", names)
	}
	for _, name := range ShippedNames() {
		text, ok := Shipped(name)
		d, err := Parse(text)
		if !ok || err != nil || d.Name != name {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	if _, ok := Shipped("../shipped/node"); ok {
		t.Error("a path is taken for a name")
	}
}

// What a declaration names lies in its directory, is a file, and is what it was.
func TestInputsStayBeside(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, "secret")
	write(filepath.Join(dir, "good"), "good")
	for name, err := range map[string]error{
		"link": os.Symlink(secret, filepath.Join(dir, "link")), "up": os.Symlink("..", filepath.Join(dir, "up")),
		"pipe": syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), "tree": os.Mkdir(filepath.Join(dir, "tree"), 0o700),
		"tree/link": os.Symlink(secret, filepath.Join(dir, "tree", "link")),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	for _, from := range []string{"link", "up/secret", "pipe", "tree", "none"} {
		d, err := Parse([]byte("base: b\nfiles: [{path: /f, from: " + from + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gather(d, dir); fieldOf(err) != "files[0].from" {
			t.Errorf("%s: %v", from, err)
		}
		if _, err := gather(d, ""); fieldOf(err) != "files[0].from" {
			t.Errorf("%s without a directory: %v", from, err)
		}
	}
	d, err := Parse([]byte("base: b\nfiles: [{path: /f, from: good}]"))
	if err != nil {
		t.Fatal(err)
	}
	in, err := gather(d, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.close()
	var got strings.Builder
	if err := in.files[0].send(&got); err != nil || got.String() != "good" {
		t.Errorf("%q, %v", got.String(), err)
	}
	write(filepath.Join(dir, "good"), "evil")
	if err := in.files[0].send(&got); fieldOf(err) != "files[0].from" {
		t.Errorf("a file that has changed since: %v", err)
	}
	for _, two := range []string{"[{path: /a, content: x}, {path: /a/b, content: y}]"} {
		d, err := Parse([]byte("base: b\nfiles: " + two))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gather(d, ""); fieldOf(err) != "files[1]" {
			t.Errorf("%s: %v", two, err)
		}
	}
}

// The host's sources of a suite are found in both of apt's forms, and no others.
func TestHostSources(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sources.list.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sources.list": "# deb http://old bookworm main\ndeb http://one bookworm main contrib # here\ndeb [signed-by=/k.gpg] http://two bookworm-updates main\n" +
			"deb-src http://src bookworm main\ndeb http://other trixie main\ndeb http://back bookworm-backports main\n",
		"sources.list.d/debian.sources": "Types: deb deb-src\nURIs: http://three http://four\nSuites: bookworm bookworm-security\nComponents: main\nSigned-By: /k.gpg\n\n" +
			"Enabled: no\nTypes: deb\nURIs: http://off\nSuites: bookworm\nComponents: main\n\n" +
			"Types: deb\nURIs: http://inline\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN\n key\n",
		"sources.list.d/x.txt": "deb http://no bookworm main\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := sourcesBelow(dir, "bookworm")
	want := []string{
		"deb [signed-by=/k.gpg] http://four bookworm main", "deb [signed-by=/k.gpg] http://four bookworm-security main",
		"deb [signed-by=/k.gpg] http://three bookworm main", "deb [signed-by=/k.gpg] http://three bookworm-security main",
		"deb [signed-by=/k.gpg] http://two bookworm-updates main", "deb http://one bookworm main contrib",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%s", err, strings.Join(got, "\n"))
	}
	if got, err := sourcesBelow(t.TempDir(), "bookworm"); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
}
