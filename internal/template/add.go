package template

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Content is an image that is to be added.
type Content struct {
	Config []byte // its OCI configuration; empty for a bare root file system
	Layers []Blob // the bottom first
	From   Origin
}

// Blob is a layer as it comes: a tar, or one compressed with gzip or zstd.
type Blob struct {
	Digest string // "sha256:…"; "" when nobody named one
	Size   int64  // in bytes; -1 when it is not known
	Open   func(ctx context.Context) (io.ReadCloser, error)
}

// Event says how far an addition has come. It is for people who wait.
type Event struct {
	Layer, Layers int   // which of how many, from 1
	Known         bool  // the layer was here already
	Bytes, Size   int64 // of the layer's blob, so far and altogether; Size may be -1
}

// eventEvery is how many bytes come between two events of one layer.
const eventEvery = 1 << 20

// Add unpacks what of an image is not here yet, and gives it the name. progress may be
// nil. After an error nothing has changed but that layers which came whole are kept for
// the next try; Collect removes them.
func (s *Store) Add(ctx context.Context, name string, c Content, progress func(Event)) (Template, error) {
	if err := CheckName(name); err != nil {
		return Template{}, err
	}
	if len(c.Layers) == 0 || len(c.Layers) > s.limits.Layers {
		return Template{}, tooMuch("has %d layers, and must have 1 to %d", len(c.Layers), s.limits.Layers)
	}
	config := ociConfig{}
	if len(c.Config) > 0 {
		var err error
		if config, err = readConfig(c.Config, len(c.Layers)); err != nil {
			return Template{}, err
		}
	}
	lock, err := s.lock(false, true)
	if err != nil {
		return Template{}, err
	}
	defer lock.Close() //nolint:errcheck // only a lock
	a := &adding{store: s, left: budget{s.limits.Bytes, s.limits.Entries}, progress: progress}
	image := Image{Architecture: runtime.GOARCH, Config: config.heeded()}
	for i, b := range c.Layers {
		diff := ""
		if len(c.Config) > 0 {
			diff = config.RootFS.DiffIDs[i]
		}
		a.event = Event{Layer: i + 1, Layers: len(c.Layers), Size: b.Size}
		l, err := a.layer(ctx, b, diff)
		if err != nil {
			return Template{}, failed(fmt.Sprintf("unpack layer %d of %d", i+1, len(c.Layers)), err)
		}
		image.Layers = append(image.Layers, l)
	}
	return s.keep(name, image, c.From)
}

// keep writes down an image whose layers are here. The store's lock is held.
func (s *Store) keep(name string, image Image, from Origin) (Template, error) {
	if err := image.identify(); err != nil {
		return Template{}, failed("name the image", err)
	}
	text, err := json.Marshal(image)
	if err != nil {
		return Template{}, failed("write down the image", err)
	}
	t := Template{Name: name, Image: image, From: from, Added: time.Now().UTC().Truncate(time.Second)}
	said, err := json.Marshal(record{image.ID, t.From, t.Added})
	if err != nil {
		return Template{}, failed("write down the template", err)
	}
	if len(said) > maxRecord { // nobody could read it again
		return Template{}, tooMuch("has more packages of indexes than can be written down")
	}
	if _, err := os.Lstat(s.path("images", image.ID.Hex()+".json")); err != nil {
		// One that is there is locked by those who use it: it stays the file that it is.
		if err := s.write(text, "images", image.ID.Hex()+".json"); err != nil {
			return Template{}, failed("write down the image", err)
		}
	}
	if err := s.write(said, "names", nameFile(name)); err != nil {
		return Template{}, failed("write down the template", err)
	}
	return t, nil
}

// adding is one image on its way in.
type adding struct {
	store    *Store
	left     budget
	progress func(Event)
	event    Event
}

func (a *adding) tell() {
	if a.progress != nil {
		a.progress(a.event)
	}
}

// layer sees to it that a layer is here.
func (a *adding) layer(ctx context.Context, b Blob, diff string) (Layer, error) {
	if diff != "" {
		if l, ok := a.store.layerOf(ID(diff)); ok {
			a.event.Known = true
			a.tell()
			return l, a.spend(l)
		}
	}
	if b.Size > a.left.bytes+headerExtra+a.left.entries*headerRoom {
		return Layer{}, tooMuch("has more bytes than are accepted")
	}
	staged, err := a.store.staging()
	if err != nil {
		return Layer{}, err
	}
	defer os.RemoveAll(staged) //nolint:errcheck // what is left of it is removed by the next Open
	a.tell()
	l, found, err := a.unpack(ctx, b, diff, staged)
	if err != nil {
		return Layer{}, err
	}
	return l, a.store.keepLayer(staged, l, found)
}

// spend counts a layer that was here already.
func (a *adding) spend(l Layer) error {
	a.left.bytes -= l.Bytes
	a.left.entries -= l.Entries
	if a.left.bytes < 0 || a.left.entries < 0 {
		return tooMuch("has more files, or more bytes, than are accepted")
	}
	return nil
}

// unpack unpacks a layer into a directory of its own, and looks at the result.
func (a *adding) unpack(ctx context.Context, b Blob, diff, staged string) (l Layer, found ID, err error) {
	r, err := b.Open(ctx)
	if err != nil {
		return l, "", err
	}
	defer r.Close() //nolint:errcheck // only read
	// What waits for a sender that does not send must end with the call.
	stop := context.AfterFunc(ctx, func() { _ = r.Close() })
	defer stop()
	in := newStream(ctx, r, b.Size, a.left.bytes+headerExtra+a.left.entries*headerRoom, a.store.limits.Ratio)
	defer in.close()
	in.tell = a.came
	root := filepath.Join(staged, "root")
	if err := makeRoot(root); err != nil {
		return l, "", err
	}
	if err := unpack(ctx, in, root, &a.left); err != nil {
		return l, "", cmp.Or(in.failure(), err) // what was wrong with the blob comes first
	}
	if found, err = in.finish(b.Digest, diff); err != nil {
		return l, "", err
	}
	a.event.Bytes = in.last.came
	a.tell()
	t, err := digest(ctx, root)
	return Layer(t), found, err
}

func makeRoot(root string) error {
	if err := os.Mkdir(root, dirMode); err != nil {
		return err
	}
	return os.Chmod(root, dirMode)
}

// came tells how much came, now and then.
func (a *adding) came(n int64) {
	if n-a.event.Bytes >= eventEvery {
		a.event.Bytes = n
		a.tell()
	}
}

// layerOf returns the layer that a tar of that hash became.
func (s *Store) layerOf(diff ID) (Layer, bool) {
	text, err := s.read("diffs", diff.Hex())
	if err != nil {
		return Layer{}, false
	}
	id, ok := parseID(string(text))
	if !ok {
		return Layer{}, false
	}
	l, err := s.readLayer(id)
	return l, err == nil
}

func (s *Store) readLayer(id ID) (l Layer, err error) {
	text, err := s.read("layers", id.Hex(), "layer")
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, err
	}
	if l.ID != id {
		return l, errors.New("the layer's record is another's")
	}
	return l, nil
}

// keepLayer puts a layer that is whole under its name. Another process may have done so
// meanwhile: then there is one already.
func (s *Store) keepLayer(staged string, l Layer, diff ID) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(staged, "layer"), text, 0o600); err != nil {
		return err
	}
	err = os.Rename(staged, s.path("layers", l.ID.Hex()))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := s.readLayer(l.ID); err != nil {
		return damaged(string(l.ID), err)
	}
	return s.write([]byte(l.ID), "diffs", diff.Hex())
}
