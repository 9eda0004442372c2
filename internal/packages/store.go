package packages

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pinfold/sandbox"
)

// DirName is a store's directory in that of a state.
const DirName = "packages"

// What lies in the directory of a store: directories of tenants, and one for what was loaded,
// in these directories of sets, in these the record and the files; and one for what is on its
// way.
const (
	treeName   = "tree"
	recordName = "set.json"
	stagesName = "tmp"
	loadedName = "loaded"
	maxRecord  = 1 << 20
)

// unusable is the error where the store's directory cannot be used.
func unusable(err error) error {
	return &sandbox.Error{
		Code: sandbox.CodePackagesFailed, Message: "packages cannot be kept: " + sandbox.SafeText(err.Error(), 300), Err: err,
		Hint: "the directory packages of the state must be ours and have room; nothing in it is needed, so it may be moved away",
	}
}

// read reads the record of a set that is here.
func (s *Store) read(owner, key string) (record, error) {
	f, err := os.Open(filepath.Join(s.o.Dir, owner, key, recordName)) //nolint:gosec // our own directory
	if err != nil {
		return record{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	return readRecord(f)
}

func readRecord(from io.Reader) (r record, err error) {
	text, err := io.ReadAll(io.LimitReader(from, maxRecord+1))
	switch {
	case err != nil:
		return r, err
	case len(text) > maxRecord:
		return r, errors.New("the record of a set is too long")
	}
	return r, json.Unmarshal(text, &r)
}

// held is a set that nobody removes meanwhile.
type held struct {
	record

	dir *os.File // locked
}

// hold takes hold of a set, if it is here.
func (s *Store) hold(owner, key string) (h held, ok bool) {
	dir := filepath.Join(s.o.Dir, owner, key)
	f, err := os.Open(dir) //nolint:gosec // our own directory
	if err != nil {
		return held{}, false
	}
	if taken, err := flock(f, false); err == nil && taken {
		// It may have been removed between the two: then there is none of that name, or another.
		if r, err := s.read(owner, key); err == nil && sameFile(f, dir) {
			now := time.Now()
			_ = os.Chtimes(filepath.Join(dir, recordName), now, now) // by which the oldest is known
			return held{r, f}, true
		}
	}
	_ = f.Close()
	return held{}, false
}

func sameFile(f *os.File, name string) bool {
	a, err := f.Stat()
	b, err2 := os.Stat(name)
	return err == nil && err2 == nil && os.SameFile(a, b)
}

// stage makes a directory for what is on its way, which is locked until done removes it.
func (s *Store) stage() (dir string, done func(), err error) {
	stages := filepath.Join(s.o.Dir, stagesName)
	if err := os.MkdirAll(stages, 0o700); err != nil {
		return "", nil, unusable(err)
	}
	s.forgetStages(stages)
	if dir, err = os.MkdirTemp(stages, "set-"); err != nil {
		return "", nil, unusable(err)
	}
	f, err := os.Open(dir) //nolint:gosec // just made
	if err == nil {
		_, err = flock(f, false)
	}
	if err != nil {
		return "", nil, unusable(errors.Join(err, os.RemoveAll(dir)))
	}
	return dir, func() { _ = os.RemoveAll(dir); _ = f.Close() }, nil
}

// stageAge is after which time a stage that nobody has locked is a dead process's.
const stageAge = time.Minute

// forgetStages removes what dead processes left on its way.
func (s *Store) forgetStages(stages string) {
	list, _ := os.ReadDir(stages)
	for _, e := range list {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > stageAge {
			_ = removeUnused(filepath.Join(stages, e.Name()), "")
		}
	}
}

// errInUse says that somebody has a set.
var errInUse = errors.New("it is in use")

// removeUnused removes a directory that nobody has locked. A set's loses its name first, by
// going to a name below stages, so that one that is half removed is none.
func removeUnused(dir, dead string) error {
	f, err := os.Open(dir) //nolint:gosec // our own directory
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only a lock
	if taken, err := flock(f, true); err != nil || !taken {
		return errors.Join(errInUse, err)
	}
	if dead != "" {
		if err := os.Rename(dir, dead); err != nil {
			return err
		}
		dir = dead
	}
	return os.RemoveAll(dir)
}

// keep puts a set that is whole, in a stage, under its name.
func (s *Store) keep(owner, stage string, r record) error {
	text, err := json.Marshal(r)
	switch {
	case err == nil && len(text) > maxRecord:
		return broken(r.Kind, "they are too many")
	case err == nil:
		err = os.WriteFile(filepath.Join(stage, recordName), text, 0o600)
	}
	if err != nil {
		return unusable(err)
	}
	if owner != loadedName {
		if err := s.makeRoom(owner, onDisk(r)); err != nil {
			return err
		}
	}
	home := filepath.Join(s.o.Dir, owner)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return unusable(err)
	}
	at := filepath.Join(home, r.key())
	if _, err := s.read(owner, r.key()); err != nil { // what cannot be read is no set
		_ = os.RemoveAll(at)
	}
	err = os.Rename(stage, at)
	if err != nil && !errors.Is(err, fs.ErrExist) { // another process has it, too: as good
		return unusable(err)
	}
	return nil
}

// onDisk is about what a set takes.
func onDisk(r record) int64 { return r.Bytes + (r.Files+2)*4096 }

// known is a set that is kept.
type known struct {
	owner, key string
	record     record
	used       time.Time
}

// sets lists all that tenants have fetched, the one that was used last at the end.
func (s *Store) sets() (all []known) {
	owners, _ := os.ReadDir(s.o.Dir)
	for _, o := range owners {
		if o.Name() != stagesName && o.Name() != loadedName {
			all = append(all, s.setsOf(o.Name())...)
		}
	}
	slices.SortFunc(all, func(a, b known) int { return a.used.Compare(b.used) })
	return all
}

func (s *Store) setsOf(owner string) (all []known) {
	keys, _ := os.ReadDir(filepath.Join(s.o.Dir, owner))
	for _, k := range keys {
		r, err := s.read(owner, k.Name())
		info, err2 := os.Stat(filepath.Join(s.o.Dir, owner, k.Name(), recordName))
		if err == nil && err2 == nil {
			all = append(all, known{owner, k.Name(), r, info.ModTime()})
		}
	}
	return all
}

// makeRoom removes sets that nobody uses until one more fits: a tenant has at most half of
// the room. The oldest go first.
func (s *Store) makeRoom(owner string, size int64) error {
	all := s.sets()
	total, own := size, size
	for _, k := range all {
		total += onDisk(k.record)
		if k.owner == owner {
			own += onDisk(k.record)
		}
	}
	for _, mine := range []bool{true, false} {
		for _, k := range all {
			if mine && (own <= s.o.Bytes/2 || k.owner != owner) || !mine && total <= s.o.Bytes {
				continue
			}
			dead := filepath.Join(s.o.Dir, stagesName, "removed-"+k.owner+"-"+k.key)
			if removeUnused(filepath.Join(s.o.Dir, k.owner, k.key), dead) != nil {
				continue
			}
			total -= onDisk(k.record)
			if k.owner == owner {
				own -= onDisk(k.record)
			}
		}
	}
	if total <= s.o.Bytes && own <= s.o.Bytes/2 {
		return nil
	}
	return (&sandbox.Error{
		Code: sandbox.CodeInsufficient, Field: "packages", Message: "there is no room for so many packages: half of " + sandbox.FormatSize(s.o.Bytes) + " is a tenant's, and what is in use stays",
	}).WithAdvice(sandbox.Advise("end sandboxes that have some, or raise %s", sandbox.Config("packages.bytes")))
}
