package image

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Layers are an image's: directories that show its root where an overlay lays the first
// over the second and so on. What is in them never changes.
type Layers struct {
	Under string   // a directory
	Dirs  []string // below it
	// Record is a file of which a shared lock is held for as long as the layers are in
	// use, see Template.Hold.
	Record string
	// Notes is a directory for those of whoever needs the layers without using them, see
	// Template.KeepFor.
	Notes string
}

// maxAccounts bounds an image's table of users or groups, in bytes.
const maxAccounts = 1 << 20

// Layered describes a template that is an image. root is the image's file tree, and user
// who its programs are by what the image says; names are those of programs that somebody
// may look up.
//
// An image that says root, or nobody, has the usual user: by the image's name and home
// for that number, if it has one. A home where none can be, as in /proc, is the usual.
func Layered(root fs.FS, name, id string, layers Layers, user User, env, names []string) Template {
	t := Template{Name: name, ID: id, Layers: layers, Env: ofNoUser(env), User: user}
	usual := Usual()
	if t.User.UID == 0 {
		t.User = usual
		if own, ok := account(root, usual.UID); ok {
			t.User = own
		}
	}
	if t.User.Tmp = usual.Tmp; !canBeHome(t.User.Home) {
		t.User.Home = usual.Home
	}
	if !isName(t.User.Name) {
		t.User.Name = usual.Name
	}
	t.addCommands(root, names)
	t.addOwnFiles(root)
	t.addDirs()
	return t
}

// StartIn has commands start in a directory of the image, as the image says, if programs see
// it: of what an image has in the sandbox's own places nothing is seen, but for the home, of
// which there is a copy. Where it is not there, or nothing but the root, they start at home.
func (t *Template) StartIn(root fs.FS, dir string) {
	v := newView(root)
	v.steps = maxSteps
	end, info, ok := v.resolve(path.Clean("/" + dir))
	if ok && end != "/" && info.IsDir() && !below(path.Clean(dir), ownPlaces) && !below(end, ownPlaces) {
		t.WorkDir = path.Clean(dir)
	}
}

// Elsewhere is the template with the programs of another root, which stands in the place of
// the host's. The id is that root's.
func (t Template) Elsewhere(root fs.FS, id string, names []string) Template {
	t.ID, t.Binds, t.Programs = id, nil, nil
	t.addCommands(root, names)
	return t
}

// AddPlaces makes further directories writable. They must be clean absolute paths that
// hide nothing a sandbox needs, see CanBePlace.
func (t *Template) AddPlaces(places []string) {
	if len(places) == 0 {
		return
	}
	dirs := map[string]bool{}
	for _, p := range places {
		t.Writable = append(t.Writable, Dir{Path: p, Mode: 0o755, UID: t.User.UID})
		addParents(dirs, p)
	}
	for _, d := range t.Dirs {
		delete(dirs, d.Path)
	}
	for p := range dirs {
		t.Dirs = append(t.Dirs, Dir{Path: p, Mode: 0o755})
	}
	slices.SortFunc(t.Dirs, func(a, b Dir) int { return strings.Compare(a.Path, b.Path) })
}

// CanBePlace says whether a directory can be made writable without hiding what a sandbox
// needs: below /usr that is /usr/local and what is in it.
func CanBePlace(p string) bool {
	return p == "/opt" || p == "/srv" || below(p, []string{"/usr/local"}) && path.Clean(p) == p || canBeHome(p)
}

// ofNoUser leaves out what names a user.
func ofNoUser(env []string) (rest []string) {
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !slices.Contains([]string{"HOME", "LOGNAME", "USER"}, name) {
			rest = append(rest, kv)
		}
	}
	return rest
}

// account returns the user of a number, as the image's /etc/passwd has it.
func account(root fs.FS, uid int) (u User, ok bool) {
	text, _ := ReadFile(root, "/etc/passwd", maxAccounts)
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) < 7 || f[0] == "" || f[2] != fmt.Sprint(uid) {
			continue
		}
		gid, err := strconv.Atoi(f[3])
		return User{UID: uid, GID: gid, Name: f[0], Home: f[5]}, err == nil && gid > 0 && gid <= MaxID
	}
	return u, false
}

// ownPlaces are made by whoever makes a sandbox: nothing of an image is seen in them.
var ownPlaces = []string{"/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp"}

// MaxID is the highest number that a user or group has in every sandbox.
const MaxID = 32_766

// isName says whether it is the name of a user, as useradd(8) takes them and some more.
func isName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-$") == ""
}

// canBeHome says whether a writable place at the path hides nothing that is needed.
func canBeHome(p string) bool {
	if !path.IsAbs(p) || path.Clean(p) != p || strings.Count(p, "/") > 8 || len(p) > 200 {
		return false
	}
	if !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl) { // a NUL ends it for the kernel
		return false
	}
	if slices.Contains(parents, p) || below(p, systemDirs) || below(p, ownPlaces) {
		return false
	}
	return p != "/" && !slices.ContainsFunc(ownPlaces, func(own string) bool { return below(own, []string{p}) })
}

// systemDirs are those of a root in which its programs are, and parents those in which
// homes are.
var (
	systemDirs = []string{"/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr"}
	parents    = []string{"/home", "/opt", "/srv", "/var", "/var/lib"}
)

// addCommands looks the programs up in the image's search path, and then in the usual.
func (t *Template) addCommands(root fs.FS, names []string) {
	add := func(search string, most int) {
		for dir := range strings.SplitSeq(search, ":") {
			if path.IsAbs(dir) && !slices.Contains(t.Programs, path.Clean(dir)) && len(t.Programs) < most {
				t.Programs = append(t.Programs, path.Clean(dir))
			}
		}
	}
	for _, kv := range t.Env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			add(value, maxPrograms)
		}
	}
	add(SearchPath, 2*maxPrograms)
	v := newView(root)
	v.steps = maxSteps
	t.Commands = map[string]string{}
	for _, name := range names {
		if found, ok := t.find(v, name, []string{""}); ok {
			t.Commands[name] = found
		}
	}
}

// maxPrograms bounds the directories of an image's search path, and maxSteps the parts of
// paths that are looked at: links of an image can lead through many.
const (
	maxPrograms = 32
	maxSteps    = 200_000
)

// addOwnFiles makes the files of /etc that say what this sandbox is. The others are the
// image's.
func (t *Template) addOwnFiles(root fs.FS) {
	add := func(p, content string) {
		t.Files = append(t.Files, File{Path: p, Mode: 0o644, Content: []byte(content)})
	}
	t.Links = append(t.Links, mtab)
	for _, f := range networkEtc {
		add(f.path, f.content)
	}
	if own, ok := account(root, t.User.UID); ok && own.Name == t.User.Name && own.Home == t.User.Home {
		return
	}
	shell := "/bin/sh"
	users, _ := ReadFile(root, "/etc/passwd", maxAccounts)
	groups, _ := ReadFile(root, "/etc/group", maxAccounts)
	add("/etc/passwd", first(fmt.Sprintf("%s:x:%d:%d::%s:%s\n", t.User.Name, t.User.UID, t.User.GID, t.User.Home, shell), users))
	add("/etc/group", first(fmt.Sprintf("%s:x:%d:\n", t.User.Name, t.User.GID), groups))
}

// first writes a line of a table before all others: the first of a name or number counts.
func first(line string, table []byte) string {
	if len(table) == 0 {
		table = []byte("root:x:0:0:root:/root:/bin/sh\n")
		if strings.Count(line, ":") < 6 {
			table = []byte("root:x:0:\n")
		}
	}
	return line + string(table)
}
