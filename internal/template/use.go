package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pinfold/sandbox"
)

// Use is an image that is in use: until Close its layers stay where they are.
type Use struct {
	Template Template
	// Layers are the directories of its layers, the topmost first, as an overlay wants
	// them. Nobody may write to them.
	Layers []string

	lock *os.File
}

// Use takes an image into use, by what Get takes.
func (s *Store) Use(name string) (*Use, error) {
	for range 16 { // between the look and the lock it may be removed and added again
		t, err := s.Get(name)
		if err != nil {
			return nil, err
		}
		lock, err := s.lockImage(t.Image.ID, false, true)
		if err != nil {
			return nil, failed("take the template into use", err)
		}
		if lock == nil {
			continue
		}
		u := &Use{Template: t, lock: lock}
		for i := len(t.Image.Layers) - 1; i >= 0; i-- {
			u.Layers = append(u.Layers, s.path("layers", t.Image.Layers[i].ID.Hex(), "root"))
		}
		return u, u.whole(name)
	}
	return nil, Unknown(name)
}

// whole closes the use if a layer is not there.
func (u *Use) whole(name string) error {
	for _, l := range u.Layers {
		if info, err := os.Lstat(l); err != nil || !info.IsDir() {
			u.Close()
			return damaged(name, errors.New("a layer of it is not there"))
		}
	}
	return nil
}

// Close ends the use. It may be called more than once, by one goroutine at a time.
func (u *Use) Close() { _ = u.lock.Close() }

// lockImage locks an image's record. nil: it is gone, or, without wait, another has it.
func (s *Store) lockImage(id ID, alone, wait bool) (*os.File, error) {
	name := s.path("images", id.Hex()+".json")
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	taken, err := flock(f, alone, wait)
	if err == nil && taken {
		var mine, there fs.FileInfo
		mine, err = f.Stat()
		if err == nil {
			there, err = os.Lstat(name)
		}
		if err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	_ = f.Close()
	return nil, err
}

// Remove takes a template's name away. What no other name stands for, and nobody uses or
// needs, is removed from the disk at once, the rest by a later Collect.
func (s *Store) Remove(ctx context.Context, name string) error {
	lock, err := s.lock(false, true)
	if err != nil {
		return err
	}
	err = os.Remove(s.path("names", nameFile(name)))
	_ = lock.Close()
	if errors.Is(err, fs.ErrNotExist) {
		return Unknown(name)
	}
	if err != nil {
		return failed("remove the template", err)
	}
	_, err = s.Collect(ctx)
	return err
}

// Collected is what Collect did.
type Collected struct {
	Images, Layers int   // removed
	Bytes          int64 // of the layers
	InUse          int   // images without a name that somebody still uses or needs
	Busy           bool  // somebody is adding something: nothing was done
}

// Collect removes the images that have no name and that nobody uses, and the layers of
// no image.
func (s *Store) Collect(ctx context.Context) (c Collected, err error) {
	lock, err := s.lock(true, false)
	if err != nil {
		return c, err
	}
	if lock == nil {
		c.Busy = true
		return c, nil
	}
	defer lock.Close() //nolint:errcheck // only a lock
	if err := s.clean(); err != nil {
		return c, err
	}
	named, err := s.named()
	if err != nil {
		return c, failed("list the templates", err)
	}
	needed, err := s.collectImages(named, &c)
	if err != nil {
		return c, failed("remove images", err)
	}
	return c, failed("remove layers", s.collectLayers(ctx, needed, &c))
}

// named returns the images that have a name.
func (s *Store) named() (map[ID]bool, error) {
	list, err := os.ReadDir(s.path("names"))
	if err != nil {
		return nil, err
	}
	named := map[ID]bool{}
	for _, e := range list {
		text, err := s.read("names", e.Name())
		if err != nil {
			return nil, err
		}
		var r record
		if unmarshal(text, &r) == nil {
			named[r.Image] = true
		}
	}
	return named, nil
}

// collectImages removes images, and returns the layers of those that stay.
func (s *Store) collectImages(named map[ID]bool, c *Collected) (map[ID]bool, error) {
	list, err := os.ReadDir(s.path("images"))
	if err != nil {
		return nil, err
	}
	needed := map[ID]bool{}
	for _, e := range list {
		id, ok := parseID(hashPrefix + strings.TrimSuffix(e.Name(), ".json"))
		if !ok {
			continue
		}
		if named[id] {
			if _, err := s.kept(id); err != nil {
				return nil, err
			}
		} else {
			removed, err := s.removeImage(id)
			if err != nil {
				return nil, err
			}
			if removed {
				c.Images++
				continue
			}
			c.InUse++
		}
		t, err := s.byID(id, string(id))
		if err != nil && sandbox.AsError(err).Code == sandbox.CodeStateCorrupt {
			continue // nobody can use it
		}
		if err != nil {
			return nil, err
		}
		for _, l := range t.Image.Layers {
			needed[l.ID] = true
		}
	}
	return needed, nil
}

// removeImage removes an image's record, unless somebody uses it.
func (s *Store) removeImage(id ID) (bool, error) {
	lock, err := s.lockImage(id, true, false)
	if err != nil || lock == nil {
		return false, err
	}
	defer lock.Close() //nolint:errcheck // only a lock
	if kept, err := s.kept(id); kept || err != nil {
		return false, err
	}
	return true, os.Remove(lock.Name())
}

// keptDir has a directory for each image that is needed without being used, and in it
// symbolic links to files for whose sake that is (image.Template.KeepFor).
const keptDir = "kept"

// kept says whether an image is needed though nobody uses it, and forgets those for whose
// sake it was.
func (s *Store) kept(id ID) (kept bool, err error) {
	notes, err := os.ReadDir(s.path(keptDir, id.Hex()))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for _, n := range notes {
		note := s.path(keptDir, id.Hex(), n.Name())
		if _, statErr := os.Stat(note); !errors.Is(statErr, fs.ErrNotExist) {
			kept = true
			continue
		}
		err = errors.Join(err, os.Remove(note))
	}
	if kept || err != nil {
		return kept, err
	}
	_ = os.Remove(s.path(keptDir, id.Hex())) // another note may have come
	return false, nil
}

// collectLayers removes all but the needed layers. Each loses its name first, so that
// one that is half removed is none.
func (s *Store) collectLayers(ctx context.Context, needed map[ID]bool, c *Collected) error {
	list, err := os.ReadDir(s.path("layers"))
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		id := ID(hashPrefix + e.Name())
		if needed[id] {
			continue
		}
		if l, err := s.readLayer(id); err == nil {
			c.Bytes += l.Bytes
		}
		dead := s.path("tmp", "removed-"+e.Name())
		if err := os.Rename(s.path("layers", e.Name()), dead); err != nil {
			return err
		}
		c.Layers++
		if err := os.RemoveAll(dead); err != nil {
			return err
		}
	}
	return s.collectDiffs()
}

// collectDiffs removes what leads to a layer that is gone.
func (s *Store) collectDiffs() error {
	if err := s.collectBuilds(); err != nil {
		return err
	}
	list, err := os.ReadDir(s.path("diffs"))
	if err != nil {
		return err
	}
	for _, e := range list {
		if _, ok := s.layerOf(ID(hashPrefix + e.Name())); ok {
			continue
		}
		if err := os.Remove(s.path("diffs", e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Check reads every byte of a template and returns what is not as it was unpacked;
// nothing means that it is whole.
func (s *Store) Check(ctx context.Context, name string, progress func(Event)) (found []string, err error) {
	u, err := s.Use(name)
	if err != nil {
		if e := sandbox.AsError(err); e.Code == sandbox.CodeStateCorrupt {
			return []string{e.Message}, nil
		}
		return nil, err
	}
	defer u.Close()
	layers := u.Template.Image.Layers
	for i, l := range layers {
		if progress != nil {
			progress(Event{Layer: i + 1, Layers: len(layers), Size: l.Bytes})
		}
		t, err := digest(ctx, filepath.Clean(u.Layers[len(layers)-1-i]))
		switch {
		case ctx.Err() != nil:
			return found, ctx.Err()
		case err != nil:
			found = append(found, fmt.Sprintf("layer %d cannot be read: %v", i+1, err))
		case t.ID != l.ID:
			found = append(found, fmt.Sprintf("layer %d was changed: it has %d entries and %d bytes with the hash %s, and %d and %d with %s when it was unpacked",
				i+1, t.Entries, t.Bytes, t.ID, l.Entries, l.Bytes, l.ID))
		}
	}
	return found, nil
}
