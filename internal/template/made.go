package template

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Composition is an image that is made of what is here and of what is added to it.
type Composition struct {
	Layers []Layer // which are here, the bottom first
	More   []Blob  // above them
	Config Config
	From   Origin
}

// Hold keeps others from collecting anything until Close, but for a process that died.
func (s *Store) Hold() (io.Closer, error) { return s.lock(false, true) }

// Compose makes an image and does not name it. The store is held (Hold).
func (s *Store) Compose(ctx context.Context, c Composition, progress func(Event)) (Image, error) {
	total := len(c.Layers) + len(c.More)
	if total == 0 || total > s.limits.Layers {
		return Image{}, tooMuch("has %d layers, and must have 1 to %d", total, s.limits.Layers)
	}
	a := &adding{store: s, left: budget{s.limits.Bytes, s.limits.Entries}, progress: progress}
	image := Image{Architecture: runtime.GOARCH, Config: c.Config}
	for _, l := range c.Layers {
		if err := a.spend(l); err != nil {
			return Image{}, err
		}
		image.Layers = append(image.Layers, l)
	}
	for i, b := range c.More {
		a.event = Event{Layer: len(c.Layers) + i + 1, Layers: total, Size: b.Size}
		l, err := a.layer(ctx, b, "")
		if err != nil {
			return Image{}, failed("make a layer", err)
		}
		if l.Entries > 0 {
			image.Layers = append(image.Layers, l)
		}
	}
	return image, failed("name the image", image.identify())
}

// Keep gives an image that was composed a name. The store is held.
func (s *Store) Keep(name string, image Image, from Origin) (Template, error) {
	if err := CheckName(name); err != nil {
		return Template{}, err
	}
	return s.keep(name, image, from)
}

// unfinished is how the note of an image begins that exists for a build only.
const unfinished = "image-"

// Lend puts an image that was composed where sandboxes can be made of it, under an ID that
// no other has, until back is called. Should this process die, the next Open removes it.
// The store is held.
func (s *Store) Lend(image Image) (id ID, back func(), err error) {
	image.Config.Lent = rand.Text()
	if err := image.identify(); err != nil {
		return "", nil, failed("name the image", err)
	}
	text, err := json.Marshal(image)
	if err != nil {
		return "", nil, failed("write down the image", err)
	}
	note := s.path("tmp", unfinished+image.ID.Hex())
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		return "", nil, failed("note the image", err)
	}
	back = func() {
		_, _ = s.removeImage(image.ID) // what still uses it leaves it to Collect
		_ = os.Remove(note)
	}
	if err := s.write(text, "images", image.ID.Hex()+".json"); err != nil {
		back()
		return "", nil, failed("write down the image", err)
	}
	return image.ID, back, nil
}

// forgetUnfinished removes the image of a build that died. The store's lock is held alone.
func (s *Store) forgetUnfinished(note string) error {
	rest, ok := strings.CutPrefix(note, unfinished)
	if !ok {
		return nil
	}
	id, ok := parseID(hashPrefix + rest)
	if !ok {
		return nil
	}
	_, err := s.removeImage(id)
	return err
}

// Built returns the image that a declaration of the hash became, if all of it is here.
// The store is held.
func (s *Store) Built(key ID) (Image, bool) {
	text, err := s.read("builds", key.Hex())
	if err != nil {
		return Image{}, false
	}
	var image Image
	if unmarshal(text, &image) != nil || len(image.Layers) == 0 {
		return Image{}, false
	}
	for _, l := range image.Layers {
		if _, ok := parseID(string(l.ID)); !ok {
			return Image{}, false
		}
		if _, err := s.readLayer(l.ID); err != nil {
			return Image{}, false
		}
	}
	return image, image.identify() == nil
}

// SetBuilt notes what a declaration of the hash became. The store is held.
func (s *Store) SetBuilt(key ID, image Image) error {
	text, err := json.Marshal(image)
	if err == nil {
		err = s.write(text, "builds", key.Hex())
	}
	return failed("note the build", err)
}

// collectBuilds forgets the builds of which a layer is gone.
func (s *Store) collectBuilds() error {
	list, err := os.ReadDir(s.path("builds"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range list {
		id, ok := parseID(hashPrefix + e.Name())
		if ok {
			_, ok = s.Built(id)
		}
		if ok {
			continue
		}
		if err := os.Remove(s.path("builds", e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Hash is the ID of what is in memory.
func Hash(b []byte) ID { return hashOf(b) }

// Spool returns a file without a name on the store's disk, for what must be read twice.
func (s *Store) Spool() (*os.File, error) {
	dir, err := s.staging()
	if err != nil {
		return nil, failed("keep something meanwhile", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "spool"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err = cmp.Or(err, os.RemoveAll(dir)); err != nil {
		return nil, failed("keep something meanwhile", err)
	}
	return f, nil
}
