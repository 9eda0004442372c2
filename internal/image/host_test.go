package image

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"pinfold/sandbox"
)

// host is a small Debian with a merged /usr, in which every word "canary" is
// something that must not be in a sandbox.
func host() fstest.MapFS {
	file := func(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content), Mode: 0o644} }
	program := &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	link := func(to string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
	}
	dir := &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	return fstest.MapFS{
		"bin": link("usr/bin"), "sbin": link("usr/sbin"), "lib": link("usr/lib"), "lib64": link("/usr/lib64"),
		"lib32":   link("opt/canary"), // out of /usr: not shown
		"library": dir,
		"usr/lib": dir, "usr/lib64": dir, "usr/sbin": dir, "usr/local/go/bin/go": program,
		"usr/lib/go-1.19/bin/go": program, "usr/lib/google/bin/x": program,
		"usr/bin/bash": program, "usr/bin/sh": link("bash"),
		"usr/bin/java":                 link("/etc/alternatives/java"),
		"etc/alternatives/java":        link("/usr/lib/jvm/java"),
		"usr/lib/jvm/java":             program,
		"usr/bin/rustc":                link("/root/.cargo/bin/rustc"),
		"root/.cargo/bin/rustc":        program,
		"usr/bin/around":               link("around"),
		"usr/bin/up":                   link("../../../usr/bin/../bin/bash"),
		"usr/bin/data":                 file("canary"),
		"etc/shadow":                   &fstest.MapFile{Data: []byte("canary"), Mode: 0o640},
		"etc/passwd":                   file("canary"),
		"etc/ssl/certs/a.pem":          file("certificate"),
		"etc/ssl/private/key.pem":      file("canary"),
		"etc/ld.so.cache":              file("cache"),
		"etc/fonts":                    link("/opt/canary"),
		"etc/java-17-openjdk/jvm.cfg":  file("-server KNOWN"),
		"etc/java-99-openjdk":          &fstest.MapFile{Mode: fs.ModeDir | 0o700},
		"etc/timezone":                 file("Etc/UTC\n"),
		"etc/localtime":                link("/usr/share/zoneinfo/Etc/UTC"),
		"usr/share/zoneinfo/Etc/UTC":   file("TZif2"),
		"etc/os-release":               link("/opt/canary"),
		"opt/canary":                   file("canary"),
		"etc/R/Renviron":               file("R_PAPERSIZE=a4\n"),
		"etc/R/Renviron.site":          file("TOKEN=canary"),
		"etc/R/ldpaths":                &fstest.MapFile{Data: []byte("canary"), Mode: 0o600},
		"etc/R/repositories":           file(strings.Repeat("canary", 1000)), // too large to copy
		"etc/php/8.2/cli/php.ini":      file("mysqli.default_pw = canary"),
		"etc/php/8.2/mods/license.ini": file("; canary\nextension = \"rel.so\"\nrel.license = canary\nextension=/opt/canary.so\n"),
		"etc/php/8.2/cli/conf.d/20-rel.ini": link(
			"/etc/php/8.2/mods/license.ini"),
		"etc/php/8.2/cli/conf.d/10-opcache.ini": file("zend_extension=opcache.so\nopcache.jit=off\n"),
	}
}

func TestHost(t *testing.T) {
	got, err := Host(host())
	if err != nil {
		t.Fatal(err)
	}
	want := Template{
		Name: "host", ID: "host", User: User{UID: 1000, GID: 1000, Name: "user", Home: "/home/user", Tmp: "/tmp"},
		Binds: []Bind{
			{"/usr", "/usr", true},
			{"/etc/alternatives", "/etc/alternatives", true},
			{"/etc/ld.so.cache", "/etc/ld.so.cache", false},
			{"/etc/ssl/certs", "/etc/ssl/certs", true},
			{"/etc/java-17-openjdk", "/etc/java-17-openjdk", true},
		},
		Links: []Link{{"usr/bin", "/bin"}, {"usr/sbin", "/sbin"}, {"usr/lib", "/lib"}, {"usr/lib64", "/lib64"}, mtab},
		Writable: []Dir{
			{"/home/user", 0o755, 1000}, {"/tmp", 0o1777, 0}, {"/var/tmp", 0o1777, 0}, {"/dev/shm", 0o1777, 0},
		},
		Programs: []string{"/usr/sbin", "/usr/bin", "/usr/local/go/bin", "/usr/lib/go-1.19/bin"},
	}
	for _, p := range []string{
		"/dev", "/etc", "/etc/R", "/etc/php", "/etc/php/8.2", "/etc/php/8.2/cli", "/etc/ssl", "/home", "/proc", "/run", "/var",
	} {
		want.Dirs = append(want.Dirs, Dir{Path: p, Mode: 0o755})
	}
	files := got.Files
	got.Files = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	contents := map[string]string{}
	for _, f := range files {
		contents[f.Path] = string(f.Content)
		if strings.Contains(string(f.Content), "canary") {
			t.Errorf("%s holds what must stay outside: %q", f.Path, f.Content)
		}
	}
	for p, want := range map[string]string{
		"/etc/passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"/etc/group":               "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
		"/etc/hostname":            "sandbox\n",
		"/etc/localtime":           "TZif2",
		"/etc/R/Renviron":          "R_PAPERSIZE=a4\n",
		"/etc/php/8.2/cli/php.ini": "zend_extension=opcache.so\nextension=rel.so\n",
	} {
		if diff := cmp.Diff(want, contents[p]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", p, diff)
		}
	}
	for _, p := range []string{"/etc/os-release", "/etc/R/ldpaths", "/etc/R/repositories", "/etc/R/Renviron.site"} {
		if _, ok := contents[p]; ok {
			t.Errorf("%s was copied", p)
		}
	}
}

func TestHostWithoutMergedUsr(t *testing.T) {
	h := host()
	for _, name := range []string{"bin", "sbin", "lib", "lib64", "lib32"} {
		delete(h, name)
	}
	h["bin/sh"] = &fstest.MapFile{Mode: 0o755}
	h["lib/x86_64/libc.so"] = &fstest.MapFile{Mode: 0o755}
	delete(h, "usr/bin/bash")
	got, err := Host(h)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Bind{{"/usr", "/usr", true}, {"/bin", "/bin", true}, {"/lib", "/lib", true}}, got.Binds[:3]); diff != "" {
		t.Errorf("binds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Link{mtab}, got.Links); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	if want := "root:x:0:0:root:/root:/bin/sh\n"; !strings.HasPrefix(string(got.Files[0].Content), want) {
		t.Errorf("passwd = %q, want a shell that exists", got.Files[0].Content)
	}
}

func TestHostWithoutUsrIsRefused(t *testing.T) {
	_, err := Host(fstest.MapFS{})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.CodeSetupFailed {
		t.Fatalf("err = %v, want setup_failed", err)
	}
}

func TestLookup(t *testing.T) {
	h := host()
	template, err := Host(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		candidates []string
		want       string
	}{
		{"in the path", []string{"bash"}, "/usr/bin/bash"},
		{"second candidate", []string{"zsh", "bash"}, "/usr/bin/bash"},
		{"earlier directory first", []string{"go"}, "/usr/local/go/bin/go"},
		{"through alternatives", []string{"java"}, "/usr/bin/java"},
		{"through dots", []string{"up"}, "/usr/bin/up"},
		{"into a home", []string{"rustc"}, ""},
		{"in a circle", []string{"around"}, ""},
		{"no program", []string{"data"}, ""},
		{"absent", []string{"cobol"}, ""},
		{"with a slash", []string{"../bin/bash", "/usr/bin/bash"}, ""},
		{"empty", []string{""}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := template.Lookup(h, c.candidates)
			if got != c.want || ok != (c.want != "") {
				t.Errorf("Lookup = %q, %v; want %q", got, ok, c.want)
			}
		})
	}
}

// TestHostHere checks the template of the machine that runs the test: small,
// coherent, and without anything that only some users may read.
func TestHostHere(t *testing.T) {
	template, err := Host(HostTree())
	if err != nil {
		t.Fatal(err)
	}
	if len(template.Binds) > 12 {
		t.Errorf("%d binds, want at most 12: each costs time in every sandbox", len(template.Binds))
	}
	checkCoherent(t, template)
	for _, b := range template.Binds {
		info, err := os.Lstat(b.Source)
		if err != nil || info.IsDir() != b.Dir || !public(info) {
			t.Errorf("bind %v: %v, %v", b, info, err)
		}
		for _, private := range []string{"/root", "/home", "/opt", "/srv", "/var", "/run", "/boot", "/etc/ssl/private", "/etc/shadow"} {
			if below(private, []string{b.Source}) || below(b.Source, []string{private}) {
				t.Errorf("bind %v shows %s", b, private)
			}
		}
	}
	if _, ok := template.Lookup(HostTree(), []string{"sh"}); !ok {
		t.Error("no sh in the template")
	}
}

// checkCoherent checks what Template promises about its lists.
func checkCoherent(t *testing.T, template Template) {
	t.Helper()
	made := map[string]bool{"/": true}
	add := func(p string) {
		if made[p] {
			t.Errorf("%s is in the template twice", p)
		}
		if !path.IsAbs(p) || path.Clean(p) != p || !made[path.Dir(p)] {
			t.Errorf("%s is not absolute and clean below a directory of the template", p)
		}
		made[p] = true
	}
	for _, d := range template.Dirs {
		add(d.Path)
	}
	for _, l := range template.Links {
		add(l.Path)
	}
	for _, f := range template.Files {
		add(f.Path)
		if most := map[bool]int{false: maxCopy, true: maxShort}[strings.HasSuffix(f.Path, "/mime.types")]; len(f.Content) > most {
			t.Errorf("%s has %d bytes", f.Path, len(f.Content))
		}
	}
	for _, w := range template.Writable {
		add(w.Path)
	}
	for _, b := range template.Binds {
		add(b.Target)
	}
}

// TestPathsEndWhereTheKernelSays follows links through random trees.
func TestPathsEndWhereTheKernelSays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	name := func() string { return []string{"a", "b", "c", "d"}[random.IntN(4)] }
	some := func() string {
		words := make([]string, 1+random.IntN(4))
		for i := range words {
			words[i] = []string{name(), name(), "..", ".", ""}[random.IntN(5)]
		}
		return strings.Join(words, "/")
	}
	found := 0
	for range 20 {
		root := t.TempDir() + strings.Repeat("/down", 40) // so that nothing is made outside
		if err := os.MkdirAll(root, 0o755); err != nil {
			t.Fatal(err)
		}
		for range 12 { // what cannot be made is left out
			_ = os.MkdirAll(filepath.Join(root, some()), 0o755)
			_ = os.Symlink(some(), filepath.Join(root, some(), name()))
			_ = os.WriteFile(filepath.Join(root, some(), name()), nil, 0o600)
		}
		for range 50 {
			p := path.Clean(root + "/" + some())
			want, err := filepath.EvalSymlinks(p)
			got, info, ok := newView(HostTree()).resolve(p)
			if ok != (err == nil) || ok && got != want {
				t.Fatalf("resolve(%s) = %q, %v; want %q, %v", p, got, ok, want, err)
			}
			if !ok {
				continue
			}
			found++
			if there, err := os.Lstat(want); err != nil || !os.SameFile(there, info) {
				t.Fatalf("resolve(%s) describes another file", p)
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d paths led anywhere", found)
	}
}

func FuzzPHPExtensions(f *testing.F) {
	f.Add("extension=a.so\n", "zend_extension = \"b\"\r\n")
	f.Add("extension=/etc/shadow", "extension=a.so\nkey=secret")
	f.Fuzz(func(t *testing.T, a, b string) {
		got := phpExtensions(newView(fstest.MapFS{
			"etc/php/8/cli/conf.d/1.ini": {Data: []byte(a), Mode: 0o644},
			"etc/php/8/cli/conf.d/2.ini": {Data: []byte(b), Mode: 0o644},
		}))
		for line := range strings.Lines(got[0].content) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			if name != "extension" && name != "zend_extension" || strings.ContainsAny(value, "/\"' \t\r") {
				t.Fatalf("line %q came through", line)
			}
		}
	})
}

func BenchmarkHost(b *testing.B) {
	for b.Loop() {
		if _, err := Host(HostTree()); err != nil {
			b.Fatal(err)
		}
	}
}
