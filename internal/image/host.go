package image

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// Host describes the "host" template: the host's own programs, read-only, and
// a made-up /etc. It looks at the host once, through root, which is the host's
// file tree (os.DirFS("/")) and must be able to read symbolic links
// (fs.ReadLinkFS). The result says what was there at that moment.
//
// The error, a *sandbox.Error, means that the host has no usable /usr.
func Host(root fs.FS) (Template, error) {
	v := newView(root)
	if info, err := v.lstat("/usr"); err != nil || !info.IsDir() {
		return Template{}, &sandbox.Error{
			Code: sandbox.CodeSetupFailed, Err: err,
			Message: "the host has no /usr directory to build the host template from",
		}
	}
	php := make(chan []phpINI, 1) // dozens of files to read: a half of all the looking
	go func() { php <- phpExtensions(newView(root)) }()
	t := Template{Name: sandbox.TemplateHost, ID: sandbox.TemplateHost, User: Usual(), Binds: []Bind{{Source: "/usr", Target: "/usr", Dir: true}}}
	t.addSystemDirs(v)
	t.addShownEtc(v)
	t.addPrograms(v)
	t.addFiles(v, <-php)
	t.addDirs()
	return t, nil
}

// addSystemDirs shows /bin, /sbin and /lib*. On a host with a merged /usr they
// are links and cost nothing; otherwise each is a bind.
func (t *Template) addSystemDirs(v *view) {
	names := []string{"bin", "sbin"}
	entries, _ := fs.ReadDir(v.root, ".")
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "lib") && len(e.Name()) <= len("libx32") {
			names = append(names, e.Name())
		}
	}
	for _, name := range names {
		p := "/" + name
		info, err := v.lstat(p)
		if err != nil {
			continue
		}
		if info.IsDir() {
			t.Binds = append(t.Binds, Bind{Source: p, Target: p, Dir: true})
			continue
		}
		if end, _, ok := v.resolve(p); ok && below(end, []string{"/usr"}) {
			t.Links = append(t.Links, Link{Target: strings.TrimPrefix(end, "/"), Path: p})
		}
	}
}

// shownEtc lists the parts of the host's /etc that are shown as they are,
// because programs in /usr point into them or read them, and they are too
// large or too many to copy. Each directory costs a mount in every sandbox, each file a
// copy.
//
// Left out on purpose, because people put secrets there: ssl/private,
// the host's own ssl/openssl.cnf (engine PINs), R/*.site (tokens), php.ini and PHP's conf.d
// (licence keys, database passwords; see phpExtensions), npmrc, pip.conf,
// gitconfig, wgetrc, environment, profile.d, default. Left out because nothing
// needs them: Python's sitecustomize (it loads Ubuntu's crash reporter),
// Perl's module defaults, man's settings, and machine-id (it identifies the host).
//
// Certificates are public by their nature; a private key that was misplaced
// among them is still private to its owner. The one secret that a Java tree
// may hold, management/jmxremote.password, is refused by the JVM itself unless
// only its owner can read it.
var shownEtc = []string{
	"/etc/alternatives",
	"/etc/ld.so.cache",
	"/etc/ssl/certs",
	"/etc/fonts",
	"/etc/java-*-openjdk",
}

// addShownEtc binds what of shownEtc exists, is readable by everybody and is
// no symbolic link to somewhere else.
func (t *Template) addShownEtc(v *view) {
	for _, pattern := range shownEtc {
		matches := []string{pattern}
		if strings.Contains(pattern, "*") {
			found, _ := fs.Glob(v.root, strings.TrimPrefix(pattern, "/"))
			slices.Sort(found)
			matches = matches[:0]
			for _, m := range found {
				matches = append(matches, "/"+m)
			}
		}
		for _, p := range matches {
			info, err := v.lstat(p)
			if err == nil && (info.IsDir() || info.Mode().IsRegular()) && public(info) {
				t.Binds = append(t.Binds, Bind{Source: p, Target: p, Dir: info.IsDir()})
			}
		}
	}
}

// Usual is the user of sandboxes whose template names none.
func Usual() User {
	return User{UID: sandbox.UID, GID: sandbox.GID, Name: sandbox.User, Home: sandbox.Home, Tmp: "/tmp"}
}

// addDirs makes the directories that hold everything else.
func (t *Template) addDirs() {
	t.Writable = []Dir{
		{Path: t.User.Home, Mode: 0o755, UID: t.User.UID},
		{Path: t.User.Tmp, Mode: 0o1777},
		{Path: "/var/tmp", Mode: 0o1777},
		{Path: "/dev/shm", Mode: 0o1777},
	}
	dirs := map[string]bool{"/proc": true, "/run": true}
	for _, w := range t.Writable {
		addParents(dirs, w.Path)
	}
	for _, b := range t.Binds {
		addParents(dirs, b.Target)
	}
	for _, l := range t.Links {
		addParents(dirs, l.Path)
	}
	for _, f := range t.Files {
		addParents(dirs, f.Path)
	}
	for p := range dirs {
		t.Dirs = append(t.Dirs, Dir{Path: p, Mode: 0o755})
	}
	slices.SortFunc(t.Dirs, func(a, b Dir) int { return strings.Compare(a.Path, b.Path) })
}

// addParents adds every directory above p, but not / and not p.
func addParents(dirs map[string]bool, p string) {
	for d := path.Dir(p); d != "/"; d = path.Dir(d) {
		dirs[d] = true
	}
}

// addPrograms lists the directories of programs that exist: those of the
// SearchPath and those of Go as Debian installs it, newest first.
func (t *Template) addPrograms(v *view) {
	dirs := strings.Split(SearchPath, ":")
	debianGo, _ := fs.Glob(v.root, "usr/lib/go-[0-9]*/bin")
	slices.Reverse(debianGo)
	for _, d := range debianGo {
		dirs = append(dirs, "/"+d)
	}
	seen := map[string]bool{}
	for _, d := range dirs {
		end, info, ok := v.resolve(d)
		if ok && info.IsDir() && !seen[end] && below(end, t.sources()) {
			seen[end] = true
			t.Programs = append(t.Programs, d)
		}
	}
}
