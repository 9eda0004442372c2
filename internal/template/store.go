package template

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pinfold/sandbox"
)

// Store keeps images in a directory. It is safe for concurrent use, see the package
// comment.
type Store struct {
	dir    string
	limits Limits
}

// passable is the mode of a directory through which a sandbox's first process goes, which
// is another user already. Nobody else comes to where it begins.
const passable = 0o711

var folders = []string{"layers", "diffs", "images", "names", "builds", "tmp"}

// Open returns the store in a directory, which is made if it is not there. It removes
// what a process that died had not finished.
func Open(dir string, l Limits) (*Store, error) {
	s := &Store{dir: dir, limits: l.withDefaults()}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, failed("make "+dir, err)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	for _, f := range folders {
		if err := os.MkdirAll(s.path(f), 0o700); err != nil {
			return nil, failed("make "+s.path(f), err)
		}
	}
	if err := os.Chmod(s.path("layers"), passable); err != nil {
		return nil, failed("make "+s.path("layers"), err)
	}
	lock, err := s.lock(true, false)
	if err != nil || lock == nil { // somebody adds something: it is for the next one
		return s, err
	}
	defer lock.Close() //nolint:errcheck // only a lock
	return s, s.clean()
}

// Look returns the store in a directory to use what is in it. ok is false where none is.
func Look(dir string, l Limits) (s *Store, ok bool, err error) {
	s = &Store{dir: dir, limits: l.withDefaults()}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err := s.check(); err != nil {
		return nil, false, err
	}
	_, err = os.Lstat(s.path("images"))
	return s, err == nil, nil
}

// check says whether the directory is ours alone: who else can write to it could put
// into a sandbox what he likes.
func (s *Store) check() error {
	info, err := os.Lstat(s.dir)
	if err != nil {
		return failed("look at "+s.dir, err)
	}
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || !ownedByUs(info) {
		return &sandbox.Error{
			Code:    sandbox.CodeSetupFailed,
			Message: fmt.Sprintf("%s is not a directory that only this user can write to", s.dir),
			Hint:    "remove it, or set another state directory",
		}
	}
	return nil
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// lock takes the store's lock. Without wait, nil: another has it.
func (s *Store) lock(alone, wait bool) (*os.File, error) {
	f, err := os.OpenFile(s.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, failed("lock the templates", err)
	}
	taken, err := flock(f, alone, wait)
	if err != nil || !taken {
		_ = f.Close()
		return nil, failed("lock the templates", err)
	}
	return f, nil
}

// clean removes what is not whole. The store's lock is held alone.
func (s *Store) clean() error {
	list, err := os.ReadDir(s.path("tmp"))
	for _, e := range list {
		err = errors.Join(err, s.forgetUnfinished(e.Name()), os.RemoveAll(s.path("tmp", e.Name())))
	}
	return failed("remove what was left unfinished", err)
}

// staging makes a directory in which something is made that is not whole yet.
func (s *Store) staging() (string, error) {
	dir := s.path("tmp", rand.Text())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, passable)
}

// write puts a small file under its name, whole or not at all.
func (s *Store) write(content []byte, parts ...string) error {
	staged := s.path("tmp", rand.Text())
	err := os.WriteFile(staged, content, 0o600)
	if err == nil {
		err = os.Rename(staged, s.path(parts...))
	}
	if err != nil {
		_ = os.Remove(staged)
	}
	return err
}

// maxRecord bounds the store's own small files, in bytes.
const maxRecord = 1 << 20

// read reads a small file of the store's.
func (s *Store) read(parts ...string) ([]byte, error) {
	f, err := os.Open(s.path(parts...))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return readMost(f, maxRecord)
}

// readMost reads everything, which may not be more than so many bytes.
func readMost(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return b, err
}

// record is what names/ keeps.
type record struct {
	Image ID        `json:"image"`
	From  Origin    `json:"from"`
	Added time.Time `json:"added"`
}

func nameFile(name string) string { return url.PathEscape(name) + ".json" }

// Get returns a template by its name, or an image by its ID or by at least twelve of the
// digits that it begins with. An image without a name has none in the answer.
func (s *Store) Get(name string) (Template, error) {
	if id, ok := parseID(name); ok {
		return s.byID(id, name)
	}
	if CheckName(name) != nil && !strings.HasPrefix(name, hashPrefix) {
		return Template{}, Unknown(name)
	}
	text, err := s.read("names", nameFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		if id, ok := s.abbreviated(name); ok {
			return s.byID(id, name)
		}
		return Template{}, Unknown(name)
	}
	if err != nil {
		return Template{}, failed("read a template's record", err)
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return Template{}, damaged(name, err)
	}
	t, err := s.byID(r.Image, name)
	t.Name, t.From, t.Added = name, r.From, r.Added
	return t, err
}

// abbreviated finds the one image whose ID begins like this.
func (s *Store) abbreviated(digits string) (id ID, ok bool) {
	digits = strings.TrimPrefix(digits, hashPrefix)
	if len(digits) < 12 || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", false
	}
	list, _ := os.ReadDir(s.path("images"))
	for _, e := range list {
		if strings.HasPrefix(e.Name(), digits) {
			if ok {
				return "", false
			}
			id, ok = parseID(hashPrefix + strings.TrimSuffix(e.Name(), ".json"))
			if !ok {
				return "", false
			}
		}
	}
	return id, ok
}

func (s *Store) byID(id ID, name string) (Template, error) {
	if _, ok := parseID(string(id)); !ok {
		return Template{}, damaged(name, errors.New("it names no image"))
	}
	text, err := s.read("images", id.Hex()+".json")
	if errors.Is(err, fs.ErrNotExist) {
		return Template{}, Unknown(name)
	}
	if err != nil {
		return Template{}, failed("read an image's record", err)
	}
	return readImage(text, id, name)
}

// readImage reads an image's record, which says what its ID says, or it is damaged.
func readImage(text []byte, id ID, name string) (Template, error) {
	var t Template
	if err := json.Unmarshal(text, &t.Image); err != nil {
		return Template{}, damaged(name, err)
	}
	said := t.Image
	if err := said.identify(); err != nil || said.ID != id {
		return Template{}, damaged(name, errors.New("its record is not the one of its hash"))
	}
	t.Image.ID = id
	return t, nil
}

// Unknown is the error for a name that no template has.
func Unknown(name string) error {
	return &sandbox.Error{
		Code: sandbox.CodeTemplateUnknown, Field: "template",
		Message: fmt.Sprintf("no template \"%s\"", sandbox.SafeText(name, 60)),
		Hint:    "take host, or one that pinfold template list names (with a server's --state, if a server is asked)",
	}
}

func damaged(name string, err error) error {
	return &sandbox.Error{
		Code: sandbox.CodeStateCorrupt, Message: fmt.Sprintf("the template \"%s\" is damaged: %v", sandbox.SafeText(name, 60), err), Err: err,
		Hint: "remove it and add it again",
	}
}

// List returns all templates, in the order of their names. What is damaged is left out;
// Check says what is wrong with it.
func (s *Store) List(ctx context.Context) ([]Template, error) {
	list, err := os.ReadDir(s.path("names"))
	if err != nil {
		return nil, failed("list the templates", err)
	}
	all := []Template{}
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name, err := url.PathUnescape(strings.TrimSuffix(e.Name(), ".json"))
		if err != nil {
			continue
		}
		if t, err := s.Get(name); err == nil {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b Template) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
