package snapshots

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

// Writing is a content that is being written. Keep or Drop ends it.
type Writing struct {
	k      *Keeper
	tenant string
	count  int // 1: it is to be kept
	f      *os.File
	named  bool // it has a name, of the unfinished
	n      int64
	sum    hash.Hash
	over   bool
}

// Begin begins a content of a tenant's, which is to be kept, or only for the moment.
func (k *Keeper) Begin(ctx context.Context, tenant string, kept bool) (*Writing, error) {
	if k.o.Bytes < 0 {
		return nil, (&sandbox.Error{Code: sandbox.CodeRequirementUnmet, Message: "this server makes no snapshots"}).
			WithAdvice(sandbox.Advise("have its operator set %s", sandbox.Config("snapshots.bytes")))
	}
	w := &Writing{k: k, tenant: tenant, sum: sha256.New()}
	if kept {
		w.count = 1
	}
	if err := k.reserve(tenant, 0, w.count); err != nil {
		if expireErr := k.Expire(ctx); expireErr != nil {
			return nil, expireErr
		}
		if err = k.reserve(tenant, 0, w.count); err != nil {
			return nil, err
		}
	}
	var err error
	if w.f, err = os.CreateTemp(k.o.Dir, unfinished+"*"); err == nil {
		if w.named = kept && k.o.Dir != ""; !w.named {
			err = os.Remove(w.f.Name())
		}
	}
	if err != nil {
		w.Drop()
		return nil, noRoom(err)
	}
	return w, nil
}

// reserve counts what a tenant is to have more, if it may.
func (k *Keeper) reserve(tenant string, bytes int64, count int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.used[tenant]
	switch {
	case count > 0 && u.count+count > k.o.PerTenant:
		return full(fmt.Sprintf("there are %d snapshots, and no more are kept", u.count))
	case u.bytes+bytes > k.o.TenantBytes:
		return full(fmt.Sprintf("snapshots may take %s together, and this one does not fit in what is left of that", sandbox.FormatSize(k.o.TenantBytes)))
	case k.all+bytes > k.o.Bytes:
		return (&sandbox.Error{Code: sandbox.CodeInsufficient, Message: "the snapshots of all tenants take as much as this server allows"}).
			WithAdvice(sandbox.Advise("remove snapshots that are not needed, or have its operator set %s", sandbox.Config("snapshots.bytes")))
	}
	k.count(tenant, bytes, count)
	return nil
}

// Write implements io.Writer, within the bounds.
func (w *Writing) Write(p []byte) (int, error) {
	n := int64(len(p))
	if err := w.k.reserve(w.tenant, n, 0); err != nil {
		return 0, err
	}
	w.n += n
	_, _ = w.sum.Write(p)
	if _, err := w.f.Write(p); err != nil {
		return 0, noRoom(err)
	}
	return len(p), nil
}

// full is the refusal of a tenant whose share is used up.
func full(why string) error {
	return (&sandbox.Error{Code: sandbox.CodeQuotaExceeded, Message: why}).
		WithAdvice(sandbox.Advise("remove those that are not needed: %s", sandbox.Call(sandbox.CallListSnapshots)))
}

// noRoom is the error of a disk that takes no more, or of what else is wrong with it.
func noRoom(err error) error {
	e := &sandbox.Error{Code: sandbox.CodeInternal, Message: "the snapshot cannot be written: " + err.Error(), Err: err}
	for _, space := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, space) {
			e.Code, e.Message, e.Hint = sandbox.CodeInsufficient, "the disk of the server's state is full", "remove snapshots that are not needed, or make room on that disk"
		}
	}
	return e
}

// Content is what was written, to be read any number of times before Drop.
func (w *Writing) Content() *Content {
	return &Content{at: w.f, size: w.n, sum: w.sum.Sum(nil)}
}

// Keep gives the content the ID of a record, and keeps both. placed is told the content's
// file, which is there for as long as the snapshot; it is not called where that has no name.
// After an error there is nothing.
func (w *Writing) Keep(ctx context.Context, r records.Snapshot, placed func(file string) error) (records.Snapshot, error) {
	r.Tenant, r.SHA256, r.Info.Bytes = w.tenant, w.sum.Sum(nil), w.n
	if w.k.o.Records == nil {
		w.Drop()
		return r, &sandbox.Error{Code: sandbox.CodeRequirementUnmet, Message: "snapshots cannot be kept where nothing is recorded"}
	}
	if err := w.place(r.Info.ID); err != nil {
		w.Drop()
		return r, noRoom(err)
	}
	failpoint.Hit("snapshot.placed")
	var err error
	if w.k.o.Dir != "" {
		err = placed(w.k.file(r.Info.ID))
	}
	if err == nil {
		err = w.k.o.Records.SaveSnapshot(ctx, r)
	}
	if err != nil {
		w.k.removeContent(r.Info.ID)
		w.Drop()
		return r, sandbox.AsError(err)
	}
	w.over = true
	failpoint.Hit("snapshot.recorded")
	return r, nil
}

// place gives the content its own name, once it is on the disk.
func (w *Writing) place(id string) error {
	if !w.named {
		w.k.mu.Lock()
		defer w.k.mu.Unlock()
		w.k.nameless[id] = w.f
		return nil
	}
	err := w.f.Sync()
	failpoint.Hit("snapshot.written")
	if err == nil {
		err = os.Rename(w.f.Name(), w.k.file(id))
	}
	if err != nil {
		return err
	}
	w.named = false
	if err := syncDir(w.k.o.Dir); err != nil {
		w.k.removeContent(id)
		return err
	}
	return w.f.Close()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Drop removes what was written, unless it was kept.
func (w *Writing) Drop() {
	if w.over {
		return
	}
	w.over = true
	if w.f != nil {
		if w.named {
			_ = os.Remove(w.f.Name())
		}
		_ = w.f.Close()
	}
	w.k.take(w.tenant, -w.n, -w.count)
}

// Content is what a snapshot holds.
type Content struct {
	at   io.ReaderAt
	size int64
	sum  []byte
	file *os.File // to be closed; nil: it is somebody else's
	done func()   // set with it: nobody reads it any more
}

// Close releases it.
func (c *Content) Close() {
	if c.file != nil {
		_ = c.file.Close()
		c.done()
	}
}

// Reader reads it once. Its end comes only after all of it is what was written: otherwise
// there is an error of code state_corrupt in its place.
func (c *Content) Reader() io.Reader {
	return &checked{r: io.NewSectionReader(c.at, 0, c.size), sum: sha256.New(), want: c.sum}
}

// checked is a content that is checked while it is read.
type checked struct {
	r    io.Reader
	sum  hash.Hash
	want []byte
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	_, _ = c.sum.Write(p[:n])
	if errors.Is(err, io.EOF) && string(c.sum.Sum(nil)) != string(c.want) {
		return 0, errDamaged
	}
	return n, err
}

var errDamaged error = &sandbox.Error{
	Code: sandbox.CodeStateCorrupt, Message: "the snapshot is not what was written: its file was damaged", Hint: "remove it, and look after the disk of the state directory",
}

// Open returns a tenant's snapshot and its content, which the caller closes.
func (k *Keeper) Open(ctx context.Context, tenant, id string) (records.Snapshot, *Content, error) {
	k.hold(id)
	r, c, err := k.open(ctx, tenant, id)
	if err != nil {
		k.release(id)
		return r, nil, err
	}
	c.done = sync.OnceFunc(func() { k.release(id) })
	return r, c, nil
}

func (k *Keeper) open(ctx context.Context, tenant, id string) (records.Snapshot, *Content, error) {
	r, err := k.Load(ctx, tenant, id)
	if err != nil {
		return r, nil, err
	}
	c := &Content{size: r.Info.Bytes, sum: r.SHA256}
	if k.o.Dir == "" {
		k.mu.Lock()
		defer k.mu.Unlock()
		f := k.nameless[id]
		if f == nil {
			return r, nil, records.NotFound("snapshot")
		}
		c.file, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	} else {
		c.file, err = os.Open(k.file(id))
	}
	if errors.Is(err, os.ErrNotExist) { // it was removed just now
		return r, nil, records.NotFound("snapshot")
	}
	if err != nil {
		return r, nil, sandbox.Errorf(sandbox.CodeInternal, "opening a snapshot: %w", err)
	}
	c.at = c.file
	return r, c, nil
}

// Load returns what is known of a tenant's snapshot.
func (k *Keeper) Load(ctx context.Context, tenant, id string) (records.Snapshot, error) {
	if k.o.Records == nil {
		return records.Snapshot{}, records.NotFound("snapshot")
	}
	r, err := k.o.Records.LoadSnapshot(ctx, tenant, id)
	switch {
	case err != nil:
		return r, records.OrNotFound(err, "snapshot")
	case !r.Info.ExpiresAt.After(time.Now()):
		return r, records.NotFound("snapshot")
	}
	return r, nil
}

// List returns a tenant's snapshots, the oldest first. There are no more than it may have.
func (k *Keeper) List(ctx context.Context, tenant string) ([]sandbox.Snapshot, error) {
	list := []sandbox.Snapshot{}
	if k.o.Records == nil {
		return list, nil
	}
	all, err := k.o.Records.ListSnapshots(ctx, tenant)
	for _, r := range all {
		if r.Info.ExpiresAt.After(time.Now()) {
			list = append(list, r.Info)
		}
	}
	return list, err
}

// Remove removes a tenant's snapshot. Sandboxes that were made of it live on.
func (k *Keeper) Remove(ctx context.Context, tenant, id string) error {
	r, err := k.Load(ctx, tenant, id)
	if err != nil {
		return err
	}
	return k.remove(ctx, r)
}

func (k *Keeper) remove(ctx context.Context, r records.Snapshot) error {
	if err := k.o.Records.RemoveSnapshot(ctx, r.Tenant, r.Info.ID); err != nil {
		return records.OrNotFound(err, "snapshot")
	}
	failpoint.Hit("snapshot.forgotten")
	k.removeContent(r.Info.ID)
	k.removed(r.Tenant, r.Info.ID, r.Info.Bytes)
	return nil
}

// removeContent removes a content of that ID. What it cannot remove, the next Collect does.
func (k *Keeper) removeContent(id string) {
	if k.o.Dir != "" {
		if err := os.Remove(filepath.Clean(k.file(id))); err != nil {
			k.o.Log.Warn("cannot remove a snapshot's content; the next start does", "snapshot", id, "error", err)
		}
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.nameless[id]; f != nil {
		_ = f.Close()
		delete(k.nameless, id)
	}
}
