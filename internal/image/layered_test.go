package image

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// Who programs of an image are, and where they are at home.
func TestLayered(t *testing.T) {
	const users = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/srv/ann:/bin/bash\n"
	for _, test := range []struct {
		name  string
		users string
		says  User
		want  User
		made  bool // a line of its own in /etc/passwd
	}{
		{name: "root, and nobody has the usual number", want: Usual(), made: true},
		{name: "root, and somebody has", users: users, want: User{UID: 1000, GID: 1000, Name: "ann", Home: "/srv/ann", Tmp: "/tmp"}},
		{name: "somebody", users: users, says: User{UID: 7, GID: 8, Name: "bob", Home: "/srv/bob"}, want: User{UID: 7, GID: 8, Name: "bob", Home: "/srv/bob", Tmp: "/tmp"}, made: true},
		{name: "a number only", users: users, says: User{UID: 7, GID: 8, Home: "/"}, want: User{UID: 7, GID: 8, Name: "user", Home: "/home/user", Tmp: "/tmp"}, made: true},
		{name: "a group that is root's", users: "x:x:1000:0::/srv/x:/bin/sh\n", want: Usual(), made: true},
		{name: "a home over the programs", says: User{UID: 7, GID: 7, Home: "/usr"}, want: User{UID: 7, GID: 7, Name: "user", Home: "/home/user", Tmp: "/tmp"}, made: true},
		{name: "a home over all homes", says: User{UID: 7, GID: 7, Home: "/home"}, want: User{UID: 7, GID: 7, Name: "user", Home: "/home/user", Tmp: "/tmp"}, made: true},
		{name: "a home in /proc", says: User{UID: 7, GID: 7, Home: "/proc/self"}, want: User{UID: 7, GID: 7, Name: "user", Home: "/home/user", Tmp: "/tmp"}, made: true},
		{name: "a home above /var/tmp", says: User{UID: 7, GID: 7, Home: "/var"}, want: User{UID: 7, GID: 7, Name: "user", Home: "/home/user", Tmp: "/tmp"}, made: true},
		{name: "a home that goes up", says: User{UID: 7, GID: 7, Home: "/srv/../etc"}, want: User{UID: 7, GID: 7, Name: "user", Home: "/home/user", Tmp: "/tmp"}, made: true},
		{name: "a home among the programs", says: User{UID: 1, GID: 1, Name: "daemon", Home: "/usr/sbin"}, want: User{UID: 1, GID: 1, Name: "daemon", Home: "/home/user", Tmp: "/tmp"}, made: true},
		{name: "a home that ends for the kernel earlier", users: "u:x:1000:1000::/..\x00:/bin/sh\n", want: User{UID: 1000, GID: 1000, Name: "u", Home: "/home/user", Tmp: "/tmp"}, made: true},
		{name: "a name that ends earlier", users: "u\x00:x:1000:1000::/home/u:/bin/sh\n", want: User{UID: 1000, GID: 1000, Name: "user", Home: "/home/u", Tmp: "/tmp"}, made: true},
		{name: "a group that nobody has", users: "u:x:1000:60000::/home/u:/bin/sh\n", want: Usual(), made: true},
		{name: "two groups", users: "u:x:1000:5 7::/home/u:/bin/sh\n", want: Usual(), made: true},
		{name: "a home of its own", says: User{UID: 7, GID: 7, Home: "/app"}, want: User{UID: 7, GID: 7, Name: "user", Home: "/app", Tmp: "/tmp"}, made: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := fstest.MapFS{"etc/passwd": {Data: []byte(test.users), Mode: 0o644}}
			got := Layered(root, "name", "id", Layers{Dirs: []string{"x"}}, test.says, nil, nil)
			if diff := cmp.Diff(test.want, got.User); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			made := ""
			for _, f := range got.Files {
				if f.Path == "/etc/passwd" {
					made = string(f.Content)
				}
			}
			if (made != "") != test.made {
				t.Errorf("/etc/passwd is %q", made)
			}
			if line, _, _ := strings.Cut(made, "\n"); test.made && !strings.HasPrefix(line, got.User.Name+":x:") {
				t.Errorf("the first line is %q", line)
			}
			if diff := cmp.Diff([]Link{mtab}, got.Links); diff != "" {
				t.Errorf("links (-want +got):\n%s", diff)
			}
			if home := got.Writable[0]; home.Path != test.want.Home || home.UID != test.want.UID {
				t.Errorf("the home is %+v", home)
			}
		})
	}
}

// Links that lead through more than anybody looks at lead nowhere, and soon.
func TestLayeredSteps(t *testing.T) {
	root := fstest.MapFS{"bin/sh": &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}}
	long := strings.Repeat("a/../", 800)
	root["a/x"] = &fstest.MapFile{}
	for i := range 30 {
		root[fmt.Sprintf("p%d", i)] = &fstest.MapFile{Data: []byte(long + fmt.Sprintf("p%d", i+1)), Mode: fs.ModeSymlink | 0o777}
	}
	var names, dirs []string
	for i := range 60 {
		names, dirs = append(names, fmt.Sprintf("n%d", i)), append(dirs, fmt.Sprintf("/p%d", i%20))
	}
	counted := &counting{MapFS: root}
	Layered(counted, "name", "id", Layers{Dirs: []string{"x"}}, User{}, []string{"PATH=" + strings.Join(dirs, ":")}, names)
	if counted.looks > maxSteps+1000 {
		t.Errorf("%d looks", counted.looks)
	}
}

type counting struct {
	fstest.MapFS
	looks int
}

func (c *counting) Lstat(name string) (fs.FileInfo, error) { c.looks++; return c.MapFS.Lstat(name) }

// Programs are found in the image's search path first, and through links as they lead
// inside.
func TestLayeredCommands(t *testing.T) {
	program := &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	root := fstest.MapFS{
		"opt/bin/python3": program, "usr/bin/python3": program, "usr/bin/sh": program,
		"usr/bin/data": &fstest.MapFile{Data: []byte("x"), Mode: 0o644},
	}
	env := []string{"PATH=/opt/bin:relative:/usr/bin", "HOME=/root", "GREETING=hello"}
	got := Layered(root, "name", "id", Layers{Dirs: []string{"x"}}, User{}, env, []string{"python3", "sh", "data", "ruby"})
	if diff := cmp.Diff(map[string]string{"python3": "/opt/bin/python3", "sh": "/usr/bin/sh"}, got.Commands); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if path, ok := got.Lookup(nil, []string{"ruby", "sh"}); !ok || path != "/usr/bin/sh" {
		t.Errorf("%q, %v", path, ok)
	}
	if diff := cmp.Diff([]string{"PATH=/opt/bin:relative:/usr/bin", "GREETING=hello"}, got.Env); diff != "" {
		t.Errorf("environment, -want +got:\n%s", diff)
	}
}

// Commands start where the image says, if that is a directory that programs see.
func TestStartIn(t *testing.T) {
	dir := &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	root := fstest.MapFS{
		"app/src": dir, "srv/ann/app": dir, "proc/1": dir, "tmp/x": dir, "app/file": {Mode: 0o644},
		"link": {Mode: fs.ModeSymlink | 0o777, Data: []byte("app/src")}, "out": {Mode: fs.ModeSymlink | 0o777, Data: []byte("/proc/1")},
		"round": {Mode: fs.ModeSymlink | 0o777, Data: []byte("round")},
	}
	for says, want := range map[string]string{
		"": "", "/": "", "/..": "", "/app/src": "/app/src", "/app/src/": "/app/src", "/app/../app": "/app", "/link": "/link", "/srv": "/srv",
		"/srv/ann": "/srv/ann", "/srv/ann/app": "/srv/ann/app", "/proc/1": "", "/out": "", "/tmp/x": "", "/tmp": "", "/app/file": "", "/absent": "", "/round": "",
	} {
		got := Layered(root, "name", "id", Layers{Dirs: []string{"x"}}, User{UID: 7, GID: 7, Home: "/srv/ann"}, nil, nil)
		got.StartIn(root, says)
		if got.WorkDir != want {
			t.Errorf("%q: commands start in %q, want %q", says, got.WorkDir, want)
		}
	}
}
