// Package snapshots keeps what sandboxes held at one moment: the content of each in a file,
// and what is known of it in the records. It bounds what all of them and one tenant's take,
// and removes them when their time is over. It looks into no content, and knows no sandbox.
//
// A snapshot is whole or not there. Its file is written under a name that says that it is
// not finished, gets its own when it is on the disk, and is recorded then; it is forgotten
// before its file goes. So whatever a killed process leaves is an unfinished file, one that
// nobody recorded, or nothing, and Collect removes the first two. What is kept only for a
// moment, as for a fork, is a file that never had a name.
package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

// Options say where snapshots are and how much they may take. A zero bound has its default.
type Options struct {
	// Dir is made where it is missing. Empty: snapshots live as long as this process, in
	// files without names in the system's temporary directory.
	Dir         string
	Bytes       int64         // of all together; default DefaultBytes, negative: none are made
	TenantBytes int64         // of one tenant; default half of Bytes
	PerTenant   int           // of one tenant; default DefaultPerTenant
	TTL         time.Duration // how long one is kept, and at most; default DefaultTTL
	Records     records.SnapshotStore
	Log         *slog.Logger
}

// Defaults of the bounds.
const (
	DefaultBytes     = 10 << 30
	DefaultPerTenant = 100
	DefaultTTL       = 7 * 24 * time.Hour
)

// Keeper keeps snapshots. It is safe for concurrent use, by one process at a time.
type Keeper struct {
	o Options

	expiring sync.Mutex // held before mu

	mu       sync.Mutex
	used     map[string]taken    // by tenant; what is being written included
	all      int64               // bytes of all
	nameless map[string]*os.File // contents without a directory, by ID
	reading  map[string]*readers // by ID
}

// taken is what a tenant's take.
type taken struct {
	bytes int64
	count int
}

// New returns a Keeper. Collect must be called before anything else.
func New(o Options) *Keeper {
	o.Bytes = cmp.Or(o.Bytes, DefaultBytes)
	o.TenantBytes = cmp.Or(o.TenantBytes, o.Bytes/2)
	o.PerTenant = cmp.Or(o.PerTenant, DefaultPerTenant)
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	return &Keeper{o: o, used: map[string]taken{}, nameless: map[string]*os.File{}, reading: map[string]*readers{}}
}

// TTL is how long a snapshot is kept that asks for so many milliseconds, 0 for the default.
func (k *Keeper) TTL(ms int64) (time.Duration, error) {
	if ms > k.o.TTL.Milliseconds() { // before it is multiplied, which may overflow
		return 0, &sandbox.Error{
			Code: sandbox.CodeLimitInvalid, Field: "ttl_ms", Message: fmt.Sprintf("%s is more than this server keeps a snapshot", sandbox.FormatQuantity(ms, sandbox.UnitMilliseconds)),
			Hint: fmt.Sprintf("ask for at most %s", sandbox.FormatQuantity(k.o.TTL.Milliseconds(), sandbox.UnitMilliseconds)),
		}
	}
	return cmp.Or(time.Duration(ms)*time.Millisecond, k.o.TTL), nil
}

// unfinished begins the names of files that are being written.
const (
	unfinished = "new-"
	suffix     = ".files"
)

func (k *Keeper) file(id string) string { return filepath.Join(k.o.Dir, id+suffix) }

// Collect removes what is not whole, as a process leaves it that is killed, and learns what
// there is.
func (k *Keeper) Collect(ctx context.Context) error {
	if k.o.Records == nil {
		return nil
	}
	known, err := k.o.Records.ListSnapshots(ctx, "")
	if err != nil {
		return err
	}
	if k.o.Dir == "" { // and so there are none of an earlier process
		for _, r := range known {
			if err := k.o.Records.RemoveSnapshot(ctx, r.Tenant, r.Info.ID); err != nil {
				return err
			}
		}
		return nil
	}
	files, err := k.files()
	if err != nil {
		return unusable(k.o.Dir, err)
	}
	for _, r := range known {
		name := r.Info.ID + suffix
		if _, there := files[name]; there {
			delete(files, name)
			k.take(r.Tenant, r.Info.Bytes, 1)
			continue
		}
		k.o.Log.Warn("a snapshot's content is gone, so it is forgotten", "snapshot", r.Info.ID)
		if err := k.o.Records.RemoveSnapshot(ctx, r.Tenant, r.Info.ID); err != nil {
			return err
		}
	}
	for name := range files {
		if err := os.Remove(filepath.Join(k.o.Dir, name)); err != nil {
			return unusable(k.o.Dir, err)
		}
		k.o.Log.Warn("removed what an earlier process had left behind", "kind", "snapshot", "name", name)
	}
	failpoint.Hit("snapshot.collected")
	return k.Expire(ctx)
}

// files lists the files of ours in the directory, which is made, and closed to others.
func (k *Keeper) files() (map[string]bool, error) {
	if err := os.Mkdir(k.o.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := os.Lstat(k.o.Dir)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	if err == nil && info.Mode().Perm() != 0o700 {
		err = os.Chmod(k.o.Dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(k.o.Dir)
	files := map[string]bool{}
	for _, e := range entries {
		if e.Type().IsRegular() && (strings.HasPrefix(e.Name(), unfinished) || strings.HasSuffix(e.Name(), suffix)) {
			files[e.Name()] = true
		}
	}
	return files, err
}

func unusable(dir string, err error) error {
	return &sandbox.Error{
		Code: sandbox.CodeConfigInvalid, Field: "snapshots",
		Message: "the snapshots' directory " + dir + " cannot be used: " + sandbox.SafeText(err.Error(), 200),
		Hint:    "let the server's user write there, or move it away, which loses the snapshots", Err: err,
	}
}

// expireEvery is how often snapshots are removed whose time is over.
const expireEvery = time.Minute

// Maintain removes snapshots whose time is over, until quit is closed.
func (k *Keeper) Maintain(quit <-chan struct{}) {
	ticker := time.NewTicker(expireEvery)
	defer ticker.Stop()
	for {
		select {
		case <-quit:
			return
		case <-ticker.C:
		}
		if err := k.Expire(context.Background()); err != nil {
			k.o.Log.Error("cannot remove old snapshots", "error", err)
		}
	}
}

// Expire removes snapshots whose time is over. It looks at all tenants', and so one at a time.
func (k *Keeper) Expire(ctx context.Context) error {
	if k.o.Records == nil {
		return nil
	}
	k.expiring.Lock()
	defer k.expiring.Unlock()
	all, err := k.o.Records.ListSnapshots(ctx, "")
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range all {
		if !r.Info.ExpiresAt.After(time.Now()) {
			if err := k.remove(ctx, r); err != nil && sandbox.AsError(err).Code != sandbox.CodeNotFound { // somebody else did
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Close ends the Keeper. What has no directory is gone.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, f := range k.nameless {
		_ = f.Close()
		delete(k.nameless, id)
	}
}

// take counts what a tenant has more, or with negative numbers less.
func (k *Keeper) take(tenant string, bytes int64, count int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count(tenant, bytes, count)
}

// count is take, by who holds the lock.
func (k *Keeper) count(tenant string, bytes int64, count int) {
	u := k.used[tenant]
	u.bytes, u.count = u.bytes+bytes, u.count+count
	k.used[tenant] = u
	k.all += bytes
	if u == (taken{}) {
		delete(k.used, tenant)
	}
}
