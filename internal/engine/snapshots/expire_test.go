package snapshots

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

// counting counts how many look through all tenants' snapshots, in total and at once.
type counting struct {
	records.SnapshotStore

	lists, now, most atomic.Int64
}

// ListSnapshots implements records.SnapshotStore.
func (c *counting) ListSnapshots(ctx context.Context, tenant string) ([]records.Snapshot, error) {
	c.lists.Add(1)
	if n := c.now.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	defer c.now.Add(-1)
	time.Sleep(time.Millisecond)
	return c.SnapshotStore.ListSnapshots(ctx, tenant)
}

// A request for a copy does not go through the snapshots of all tenants, of which others
// decide how many and how large they are; where there is no room it does, one at a time, and
// gets that of what has expired.
func TestBeginLooksThroughAllOnlyForRoom(t *testing.T) {
	store := &counting{SnapshotStore: memstore.New(memstore.Options{})}
	k := open(t, Options{Dir: filepath.Join(t.TempDir(), "s"), PerTenant: 1, Records: store})
	keep := func(id string, lives time.Duration) {
		t.Helper()
		w, err := k.Begin(t.Context(), "t", true)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Drop()
		if _, err := w.Keep(t.Context(), records.Snapshot{Info: sandbox.Snapshot{ID: id, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(lives)}}, noNote); err != nil {
			t.Fatal(err)
		}
	}
	before := store.lists.Load()
	keep("over", -time.Second)
	for range 20 {
		w, err := k.Begin(t.Context(), "u", false)
		if err != nil {
			t.Fatal(err)
		}
		w.Drop()
	}
	if n := store.lists.Load() - before; n != 0 {
		t.Errorf("all snapshots were listed %d times", n)
	}
	keep("lives", time.Hour) // in the room of the one that is over
	over := make(chan error)
	for range 8 {
		go func() {
			_, err := k.Begin(context.Background(), "t", true)
			over <- err
		}()
	}
	for range 8 {
		if err := <-over; err == nil || sandbox.AsError(err).Code != sandbox.CodeQuotaExceeded {
			t.Errorf("a second one: %v", err)
		}
	}
	if n := store.most.Load(); n != 1 {
		t.Errorf("%d look at once", n)
	}
}

// noNote is for snapshots whose template nobody removes.
func noNote(string) error { return nil }
