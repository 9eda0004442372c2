package docker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	engineimage "github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/template"
	"pinfold/sandbox"
)

const (
	// maxCopies is how many templates the engine has copies of, beside those of which
	// machines are.
	maxCopies = 32
	// collectEvery is how often it is looked which copies nobody needs.
	collectEvery = time.Minute
	// loadTimeout bounds how long the engine may take for a copy.
	loadTimeout = 30 * time.Minute
	// maxAnswer bounds what the engine says of it, in bytes.
	maxAnswer = 1 << 20
)

// copies are those of templates that the engine has. They are safe for concurrent use.
type copies struct {
	mu        sync.Mutex
	known     map[string]*copied // by image name
	collected time.Time
}

// copied is what is known of one.
type copied struct {
	turn  chan struct{} // has room for who makes or removes it
	users int           // who are making machines of it
	used  time.Time
}

// of returns what is known of a copy. The lock is held.
func (c *copies) of(name string) *copied {
	if c.known == nil {
		c.known = map[string]*copied{}
	}
	if c.known[name] == nil {
		c.known[name] = &copied{turn: make(chan struct{}, 1)}
	}
	return c.known[name]
}

// use keeps a copy from being collected until done is called.
func (c *copies) use(name string) (one *copied, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one = c.of(name)
	one.users++
	return one, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		one.users--
		one.used = time.Now()
	}
}

// due says whether it is time to collect, and that the caller does.
func (c *copies) due(atOnce bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !atOnce && time.Since(c.collected) < collectEvery {
		return false
	}
	c.collected = time.Now()
	return true
}

// haveImage sees to it that the engine has what a machine of a template shows. It is not
// collected until done is called; afterwards a container keeps it.
func (d *Driver) haveImage(ctx context.Context, t image.Template) (done func(), err error) {
	if len(t.Layers.Dirs) == 0 {
		return func() {}, nil
	}
	engine, err := d.engine()
	if err != nil {
		return nil, err
	}
	name := d.o.image(t)
	one, used := d.copies.use(name)
	defer func() {
		if err != nil {
			used()
		}
	}()
	select {
	case one.turn <- struct{}{}:
		defer func() { <-one.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	known, err := hasImage(ctx, engine, name)
	if err == nil && !known {
		if err = d.give(ctx, engine, t, name); err == nil {
			known, err = hasImage(ctx, engine, name)
		}
		if err == nil && !known {
			err = errors.New("the engine has loaded it, and does not know it")
		}
	}
	if err == nil && d.copies.due(!known) {
		_ = d.collect(ctx, engine) // the next one tries again
	}
	return used, err
}

func hasImage(ctx context.Context, engine *client.Client, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := engine.ImageInspect(ctx, name)
	if cerrdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// give gives the engine a template. Nothing of it is written to a disk on the way.
func (d *Driver) give(ctx context.Context, engine *client.Client, t image.Template, name string) error {
	held, err := t.Hold()
	if err != nil {
		return err
	}
	defer held.Close() //nolint:errcheck // only a lock
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := template.EngineArchive(ctx, w, t, name, map[string]string{labelState: d.o.StateDir, labelRecord: t.Layers.Record})
		packed <- err
		_ = w.CloseWithError(err)
	}()
	err = load(ctx, engine, r)
	_ = r.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // whoever packs ends
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) && (err == nil || !errors.Is(packErr, err)) {
		return packErr
	}
	return err
}

// load sends an archive, and reads what the engine says of it.
func load(ctx context.Context, engine *client.Client, archive io.Reader) error {
	said, err := engine.ImageLoad(ctx, archive, client.ImageLoadWithQuiet(true))
	if err != nil {
		return err
	}
	defer said.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(io.LimitReader(said, maxAnswer))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		var one struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(line, &one) == nil && one.Error != "" {
			return errors.New("the engine says: " + sandbox.SafeText(one.Error, 300))
		}
	}
	return nil
}

// collect removes the copies of templates that are gone, and those that were not used for
// the longest time where there are many. What a container is of the engine keeps.
func (d *Driver) collect(ctx context.Context, engine *client.Client) (gone []driver.Leftover) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := engine.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("label", labelState+"="+d.o.StateDir)})
	if err != nil {
		return nil
	}
	for _, i := range d.copies.unneeded(list.Items) {
		_, err := engine.ImageRemove(ctx, i.name, client.ImageRemoveOptions{PruneChildren: true})
		<-i.turn
		switch {
		case cerrdefs.IsConflict(err):
			continue // a container is made of it
		case cerrdefs.IsNotFound(err):
			err = nil
		}
		gone = append(gone, driver.Leftover{Kind: "image", Name: i.name, Err: err})
	}
	return gone
}

// unneeded is a copy that nobody needs. Whoever takes it gives its turn back.
type unneeded struct {
	*copied
	name string
	used time.Time
	gone bool // its template is
}

// unneeded returns those of the engine's copies that nobody needs.
func (c *copies) unneeded(all []engineimage.Summary) (chosen []unneeded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var some []unneeded
	for _, s := range all {
		name := s.ID
		if len(s.RepoTags) > 0 {
			name = s.RepoTags[0]
		}
		one := unneeded{copied: c.of(name), name: name, used: time.Unix(s.Created, 0)}
		if !one.copied.used.IsZero() {
			one.used = one.copied.used
		}
		_, err := os.Lstat(s.Labels[labelRecord])
		one.gone = errors.Is(err, os.ErrNotExist)
		if one.users == 0 {
			some = append(some, one)
		}
	}
	slices.SortFunc(some, func(a, b unneeded) int { return a.used.Compare(b.used) })
	for i, one := range some {
		if !one.gone && i >= len(some)-maxCopies {
			continue
		}
		select {
		case one.turn <- struct{}{}:
			chosen = append(chosen, one)
		default:
		}
	}
	return chosen
}
