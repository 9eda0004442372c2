//go:build linux

// Package templates builds templates for real: in sandboxes, of this host's programs and,
// as root, of Debian's packages.
package templates

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold"
	"pinfold/client"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/template"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
	"pinfold/test/server"
	"pinfold/test/smallimage"
)

// builder is a library with a directory of images, and one for declarations.
type builder struct {
	t      *testing.T
	local  *pinfold.Local
	images string
	agent  string
	dir    string
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	ledger.Check(t)
	b := &builder{t: t, images: filepath.Join(t.TempDir(), "images"), dir: t.TempDir()}
	b.local = b.open(pinfold.Options{Agent: filepath.Join(agenttest.Install(t, agenttest.Agent), "pinfold-agent")})
	b.wheel()
	b.npm()
	b.deb()
	b.file("app/main.py", "print('the app')\n", 0o644)
	b.file("app/bin/tool", "#!/bin/sh\necho tool\n", 0o755)
	return b
}

// open opens the library over the images.
func (b *builder) open(o pinfold.Options) *pinfold.Local {
	b.t.Helper()
	o.Images, b.agent = b.images, o.Agent
	local, err := pinfold.Open(b.t.Context(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := local.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return local
}

func (b *builder) file(name, text string, mode os.FileMode) {
	b.t.Helper()
	to := filepath.Join(b.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), mode)); err != nil {
		b.t.Fatal(err)
	}
}

// wheel makes one that holds what a compiler could write in several orders.
func (b *builder) wheel() {
	b.t.Helper()
	var text bytes.Buffer
	z := zip.NewWriter(&text)
	files := [][2]string{
		{"wheeled/__init__.py", "def said(x='says'):\n    return x in {'wheel', 'says', 'a', 'b', 'c'} and 'the wheel ' + x\n"},
		{"wheeled-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: wheeled\nVersion: 1.0\n"},
		{"wheeled-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"wheeled-1.0.dist-info/RECORD", "wheeled/__init__.py,,\nwheeled-1.0.dist-info/METADATA,,\nwheeled-1.0.dist-info/WHEEL,,\nwheeled-1.0.dist-info/RECORD,,\n"},
	}
	for _, f := range files {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.file("wheels/wheeled-1.0-py3-none-any.whl", text.String(), 0o644)
}

func (b *builder) npm() {
	b.t.Helper()
	var text bytes.Buffer
	g := gzip.NewWriter(&text)
	w := tar.NewWriter(g)
	for _, f := range [][2]string{{"package/package.json", `{"name": "packed", "version": "1.0.0", "main": "i.js", "bin": {"packed": "cli.js"}}`}, {"package/i.js", "module.exports = () => 'the package says'"}, {"package/cli.js", "#!/usr/bin/env node\nconsole.log(require('./i.js')())\n"}} {
		err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o755, Size: int64(len(f[1]))})
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), g.Close()); err != nil {
		b.t.Fatal(err)
	}
	b.file("packed-1.0.0.tgz", text.String(), 0o644)
}

// deb makes a package whose script would leave a mark.
func (b *builder) deb() {
	b.t.Helper()
	b.file("deb/DEBIAN/control", "Package: extra\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@example.com>\nDescription: extra\n", 0o644)
	b.file("deb/DEBIAN/postinst", "#!/bin/sh\ntouch /usr/share/extra/script\n", 0o755)
	b.file("deb/usr/share/extra/said", "the deb says\n", 0o644)
	if out, err := exec.CommandContext(b.t.Context(), "dpkg-deb", "--root-owner-group", "--build", filepath.Join(b.dir, "deb"), filepath.Join(b.dir, "extra_1.0_all.deb")).CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
}

func (b *builder) build(declaration string, o pinfold.BuildOptions) (pinfold.BuiltTemplate, error) {
	o.Dir = b.dir
	return b.local.BuildTemplate(b.t.Context(), declaration, o)
}

func (b *builder) must(declaration string, o pinfold.BuildOptions) pinfold.BuiltTemplate {
	b.t.Helper()
	got, err := b.build(declaration, o)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, sandbox.AsError(err).Hint)
	}
	return got
}

// run runs a program in a template and returns what it printed.
func (b *builder) run(template, language, code string) string {
	b.t.Helper()
	return b.ran(b.local, sandbox.Spec{Template: template, Language: language, Code: code}).Stdout
}

func (b *builder) ran(local *pinfold.Local, spec sandbox.Spec) *sandbox.Result {
	b.t.Helper()
	r, err := local.Run(b.t.Context(), spec, client.RunOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	if r.Status != sandbox.StatusSucceeded {
		b.t.Fatalf("%s by %+v: %s", r.Status, r.Cause, r.Stderr)
	}
	return r
}

// kept lists what of images and of unfinished things is in the store.
func (b *builder) kept() string {
	b.t.Helper()
	var all []string
	for _, dir := range []string{"names", "images", "tmp"} {
		list, err := os.ReadDir(filepath.Join(b.images, dir))
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range list {
			all = append(all, dir+"/"+e.Name())
		}
	}
	return strings.Join(all, " ")
}

const whole = `
name: whole
base: tools
packages: {python: [wheels/wheeled-1.0-py3-none-any.whl], npm: [packed-1.0.0.tgz], debian: [extra_1.0_all.deb]}
files:
  - {path: /etc/app.conf, content: "level = 3\n"}
  - {path: /opt/app, from: app}
env: {LEVEL: "3"}
workdir: /opt/work
writable: [/data]
run:
  - "echo made > made; ln -s /opt/work/made /srv/link; echo old > /usr/local/share/kept; rm /usr/local/share/old; chmod 755 made"
  - "test $LEVEL = 3 && /opt/app/bin/tool > /data/tool && rm /opt/app/bin/tool && date > /tmp/not-kept && date > ~/not-kept"
`

// A build does all that its declaration says, and what is built is what programs find. The
// same declaration over the same files makes the same image, also where nothing of an
// earlier build is used; then a second one takes it.
func TestBuild(t *testing.T) {
	b := newBuilder(t)
	smallimage.Tools(t, b.images, "tools")
	var steps []string
	first := b.must(whole, pinfold.BuildOptions{BuildOptions: client.BuildOptions{Progress: func(e sandbox.BuildEvent) {
		if e.Says != "" {
			steps = append(steps, fmt.Sprintf("%d/%d %s", e.Number, e.Of, e.Step))
		}
	}}})
	if want := []string{"1/8 base", "2/8 packages.debian[0]", "3/8 files", "4/8 packages.python", "5/8 packages.npm", "6/8 run[0]", "7/8 run[1]", "8/8 layer"}; !slices.Equal(steps, want) {
		t.Errorf("the steps were %q", steps)
	}
	got := b.run("whole", "python", `
import os, subprocess, wheeled
print(wheeled.said(), os.environ["LEVEL"], open("/etc/app.conf").read().strip())
print(subprocess.run(["packed"], capture_output=True, text=True).stdout.strip())
print(open("/srv/link").read().strip(), os.access("/opt/work/made", os.X_OK), open("/data/tool").read().strip())
print(sorted(os.listdir("/usr/local/share")), open("/usr/local/share/kept").read().strip(), os.listdir("/opt/app/bin"), "not-kept" in os.listdir("/tmp") + os.listdir("/home/user"))
print(open("/usr/share/extra/said").read().strip(), os.listdir("/usr/share/extra"))
print(open("/opt/app/main.py").read().strip(), wheeled.__cached__ and os.path.exists(wheeled.__cached__))
for p in ("/opt/work/x", "/usr/local/x", "/data/x"):
    try: open(p, "w")
    except OSError as e: print(e.strerror)
`)
	if want := "the wheel says 3 level = 3\nthe package says\nmade True tool\n['kept'] old [] False\nthe deb says ['said']\nprint('the app') True\n" + strings.Repeat("Read-only file system\n", 3); got != want {
		t.Errorf("programs find\n%s\nwant\n%s", got, want)
	}
	if got := b.run("whole", "javascript", `console.log(require("packed")())`); got != "the package says\n" {
		t.Errorf("%q", got)
	}
	again := b.must(whole, pinfold.BuildOptions{Name: "again", BuildOptions: client.BuildOptions{Fresh: true}})
	if again.Image != first.Image || again.Cached {
		t.Errorf("%+v, and then %+v", first, again)
	}
	cached := b.must(whole, pinfold.BuildOptions{Name: "cached"})
	if cached.Image != first.Image || !cached.Cached {
		t.Errorf("%+v, and then %+v", first, cached)
	}
	b.file("app/main.py", "print('another app')\n", 0o644)
	if other := b.must(whole, pinfold.BuildOptions{Name: "other"}); other.Image == first.Image || other.Cached {
		t.Errorf("a file has changed, and the image has not: %+v", other)
	}
	t.Logf("built in %d ms, again in %d ms, cached in %d ms", first.WallMS, again.WallMS, cached.WallMS)
}

func TestBuildAsUser(t *testing.T) { asuser.Rerun(t, "TestBuild", []string{agenttest.Agent}, nil) }

// A step that fails, or goes beyond a limit, is named with what it printed last, and
// leaves nothing.
func TestBuildFails(t *testing.T) {
	b := newBuilder(t)
	smallimage.Tools(t, b.images, "tools")
	b.file("broken.whl", "no wheel", 0o644)
	b.file("broken.deb", "no package", 0o644)
	before := b.kept()
	for declaration, want := range map[string]struct{ field, code, says string }{
		"run: ['true', 'echo why; exit 3']":                              {"run[1]", sandbox.CodeBuildFailed, "exit status 3; the last that it printed:\nwhy"},
		"run: ['kill -SEGV $$']":                                         {"run[0]", sandbox.CodeBuildFailed, "SIGSEGV"},
		"run: ['while :; do :; done']\nlimits: {time: 1s}":               {"run[0]", sandbox.CodeBuildFailed, "wall_time"},
		"run: ['head -c 64M /dev/zero > /opt/x']\nlimits: {disk: 32MiB}": {"run[0]", sandbox.CodeBuildFailed, "space"},
		"run: ['echo x > /etc/passwd']":                                  {"run[0]", sandbox.CodeBuildFailed, "Read-only file system"},
		"run: ['python3 -c \"import socket; socket.create_connection((chr(49)+chr(46)+chr(49), 80), 2)\"']": {"run[0]", sandbox.CodeBuildFailed, "unreachable"},
		"packages: {python: [broken.whl]}":                                     {"packages.python", sandbox.CodeBuildFailed, "broken.whl"},
		"packages: {debian: [broken.deb]}":                                     {"packages.debian[0]", sandbox.CodeBuildFailed, "dpkg-deb"},
		"packages: {npm: [none.tgz]}":                                          {"packages.npm[0]", sandbox.CodeFileNotFound, "none.tgz"},
		"user: nobody-there":                                                   {"user", sandbox.CodeUnsafeArchive, "nobody-there"},
		"user: nobody-there\nrun: [id]":                                        {"user", sandbox.CodeUnsafeArchive, "nobody-there"},
		"files: [{path: /lib64/x, content: a}, {path: /bin/sh/x, content: a}]": {"files[1]", sandbox.CodeSpecInvalid, "is a file in the base"},
	} {
		_, err := b.build("name: fails\nbase: tools\n"+declaration, pinfold.BuildOptions{})
		e := sandbox.AsError(err)
		if err == nil || e.Field != want.field || e.Code != want.code || !strings.Contains(e.Message, want.says) {
			t.Errorf("%s: %v", declaration, err)
		}
		if after := b.kept(); after != before {
			t.Errorf("%s: kept %s, before %s", declaration, after, before)
		}
	}
	_, err := b.build("name: fails\nbase: nothing", pinfold.BuildOptions{})
	if e := sandbox.AsError(err); e.Field != "base" || e.Code != sandbox.CodeTemplateUnknown {
		t.Errorf("a base that is not there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = b.local.BuildTemplate(ctx, "name: fails\nbase: tools\nrun: [sleep 60]", pinfold.BuildOptions{BuildOptions: client.BuildOptions{Progress: func(e sandbox.BuildEvent) {
		if e.Step == "run[0]" {
			cancel()
		}
	}}})
	if after := b.kept(); err == nil || after != before {
		t.Errorf("cancelled: %v, kept %s", err, after)
	}
}

// killedEnv has the test's own program be the one that is killed: images, agent.
const killedEnv = "PINFOLD_TEST_KILLED_BUILD"

// Of a build that is killed nothing is left once the next one begins.
func TestBuildIsKilled(t *testing.T) {
	if where := os.Getenv(killedEnv); where != "" {
		images, agent, _ := strings.Cut(where, ":")
		local, err := pinfold.Open(t.Context(), pinfold.Options{Images: images, Agent: agent})
		if err != nil {
			t.Fatal(err)
		}
		_, err = local.BuildTemplate(t.Context(), "name: killed\nbase: tools\nrun: [sleep 600]", pinfold.BuildOptions{BuildOptions: client.BuildOptions{Progress: func(e sandbox.BuildEvent) {
			if e.Step == "run[0]" {
				fmt.Println("it runs")
			}
		}}})
		t.Fatal(err)
	}
	b := newBuilder(t)
	smallimage.Tools(t, b.images, "tools")
	before := b.kept()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBuildIsKilled$", "-test.timeout=5m")
	c.Env = append(os.Environ(), killedEnv+"="+b.images+":"+b.agent)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	for said.Scan() && said.Text() != "it runs" {
	}
	if during := b.kept(); during == before {
		t.Error("nothing was there while it was built: the test looks at the wrong place")
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()                            // it was killed
	b.open(pinfold.Options{Agent: b.agent}) // removes what is left of sandboxes
	b.must("name: next\nbase: tools\nfiles: [{path: /etc/x, content: x}]", pinfold.BuildOptions{})
	if err := b.remove("next"); err != nil {
		t.Fatal(err)
	}
	if after := b.kept(); after != before {
		t.Errorf("kept %s, before %s", after, before)
	}
}

func (b *builder) remove(name string) error {
	s, err := template.Open(b.images, template.Limits{})
	if err != nil {
		return err
	}
	return s.Remove(b.t.Context(), name)
}

// A base of Debian's packages is the same each time, holds nothing of the host's, and
// programs run in what is built on it, cold and warm.
func TestBuildDebian(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes a base of Debian's packages")
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		drivertest.Missing(t, "mmdebstrap is not installed")
	}
	b := newBuilder(t)
	const declaration = `
name: debian
base: {debian: {suite: bookworm, packages: [python3-pip]}}
packages: {python: [wheels/wheeled-1.0-py3-none-any.whl]}
files: [{path: /opt/app, from: app}]
run: ["python3 /opt/app/main.py > /opt/said"]
`
	first := b.must(declaration, pinfold.BuildOptions{})
	again := b.must(declaration, pinfold.BuildOptions{Name: "again", BuildOptions: client.BuildOptions{Fresh: true}})
	if first.Image != again.Image || again.Cached {
		t.Errorf("%+v, and then %+v", first, again)
	}
	if cached := b.must(declaration, pinfold.BuildOptions{}); !cached.Cached || cached.Image != first.Image {
		t.Errorf("%+v", cached)
	}
	t.Logf("%d bytes, built in %d ms, again in %d ms", first.Bytes, first.WallMS, again.WallMS)
	got := b.run("debian", "python", "import wheeled; print(wheeled.said(), open('/opt/said').read().strip(), open('/etc/debian_version').read()[:2])")
	if got != "the wheel says the app 12\n" {
		t.Errorf("%q", got)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := b.run("debian", "sh", "cat /etc/machine-id /etc/resolv.conf /var/log/*.log /root/* 2>/dev/null; ls /var/lib/apt/lists /tmp"); strings.Contains(got, host) {
		t.Errorf("the host's name is in the template:\n%s", got)
	}
	warm := b.open(pinfold.Options{Agent: b.agent, Pools: []sandbox.PoolSpec{{Name: "warm", Template: "debian", Language: "python", Warm: []string{"wheeled"}, Min: 1}}})
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r := b.ran(warm, sandbox.Spec{Template: "debian", Language: "python", Warm: []string{"wheeled"}, Code: "import wheeled; print(wheeled.said('wheel'))"})
		if r.Stdout != "the wheel wheel\n" {
			t.Fatalf("%q", r.Stdout)
		}
		if r.Warm {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no run is warm")
		}
	}
	_, err = b.build("name: none\nbase: {debian: {suite: bookworm, packages: [no-such-package-anywhere]}}", pinfold.BuildOptions{})
	if e := sandbox.AsError(err); e.Code != sandbox.CodeBuildFailed || e.Field != "base" || !strings.Contains(e.Message, "no-such-package-anywhere") {
		t.Errorf("a package that does not exist: %v", err)
	}
}

// A server builds as well, and tells how far it is.
func TestBuildByServer(t *testing.T) {
	ledger.Check(t)
	state := t.TempDir()
	smallimage.Tools(t, filepath.Join(state, "templates"), "tools")
	s, err := server.Start(t.Context(), server.Options{Program: server.Build(t), State: state})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	var steps []string
	o := client.BuildOptions{Progress: func(e sandbox.BuildEvent) { steps = append(steps, e.Step+":"+strings.TrimSpace(e.Output)) }}
	got, err := s.Client.BuildTemplate(t.Context(), []byte(`{"name": "built", "base": "tools", "files": [{"path": "/etc/x", "content_base64": "aGVsbG8="}], "run": ["echo working; cat /etc/x > /opt/x"]}`), o)
	if err != nil || got.Name != "built" || !slices.Contains(steps, "run[0]:working") {
		t.Fatalf("%+v, %v, %q", got, err, steps)
	}
	r, err := s.Client.Run(t.Context(), sandbox.Spec{Template: "built", Language: "python", Code: "print(open('/opt/x').read())"}, client.RunOptions{})
	if err != nil || r.Stdout != "hello\n" {
		t.Errorf("%+v, %v", r, err)
	}
	for declaration, field := range map[string]string{
		`{"name": "b", "base": "tools", "run": ["exit 3"]}`: "run[0]", `{"name": "b", "base": "tools", "files": [{"path": "/x", "from": "etc/passwd"}]}`: "files[0].from",
		`{"name": "b", "base": "tools", "runs": []}`: "runs", `{"base": "tools"}`: "name",
	} {
		if _, err := s.Client.BuildTemplate(t.Context(), []byte(declaration), client.BuildOptions{}); err == nil || sandbox.AsError(err).Field != field {
			t.Errorf("%s: %v", declaration, err)
		}
	}
}
