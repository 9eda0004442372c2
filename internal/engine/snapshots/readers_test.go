package snapshots

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

// What was removed counts for as long as somebody reads it: else a tenant fills the disk by
// removing what sandboxes that wait in the queue are to be made of, and beginning anew.
func TestRemovedContentCountsWhileItIsRead(t *testing.T) {
	for what, dir := range map[string]string{"files": filepath.Join(t.TempDir(), "s"), "nameless": ""} {
		k := open(t, Options{Dir: dir, Bytes: 100, TenantBytes: 60, Records: memstore.New(memstore.Options{})})
		write := func(id string) error {
			w, err := k.Begin(t.Context(), "t", true)
			if err != nil {
				return err
			}
			defer w.Drop()
			if _, err := w.Write(make([]byte, 40)); err != nil {
				return err
			}
			_, err = w.Keep(t.Context(), records.Snapshot{Info: sandbox.Snapshot{ID: id, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}}, noNote)
			return err
		}
		remove := func(id string) {
			t.Helper()
			if err := k.Remove(t.Context(), "t", id); err != nil {
				t.Fatal(what, err)
			}
		}
		if err := write("one"); err != nil {
			t.Fatal(what, err)
		}
		var readers []*Content
		for range 2 {
			_, c, err := k.Open(t.Context(), "t", "one")
			if err != nil {
				t.Fatal(what, err)
			}
			readers = append(readers, c)
		}
		if _, _, err := k.Open(t.Context(), "other", "one"); err == nil {
			t.Errorf("%s: another tenant's", what)
		}
		remove("one")
		for _, c := range readers {
			if err := write("two"); err == nil || sandbox.AsError(err).Code != sandbox.CodeQuotaExceeded {
				t.Errorf("%s: a second one beside what is still on the disk: %v", what, err)
			}
			if n, err := io.Copy(io.Discard, c.Reader()); n != 40 || err != nil {
				t.Errorf("%s: %d bytes, %v", what, n, err)
			}
			c.Close()
			c.Close()
		}
		if err := write("two"); err != nil {
			t.Errorf("%s: when nobody reads it: %v", what, err)
		}
		remove("two")
		if k.all != 0 || len(k.used) > 0 || len(k.reading) > 0 {
			t.Errorf("%s: counted: %d, %+v, %+v", what, k.all, k.used, k.reading)
		}
	}
}

// Who asks for another tenant's while that is removed gets none of its bytes.
func TestRemovedWhileAStrangerAsks(t *testing.T) {
	store := &asking{SnapshotStore: memstore.New(memstore.Options{})}
	k := open(t, Options{Dir: filepath.Join(t.TempDir(), "s"), Records: store})
	w, err := k.Begin(t.Context(), "t", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 40)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Keep(t.Context(), records.Snapshot{Info: sandbox.Snapshot{ID: "one", CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}}, noNote); err != nil {
		t.Fatal(err)
	}
	store.meanwhile = func() {
		if err := k.Remove(t.Context(), "t", "one"); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := k.Open(t.Context(), "stranger", "one"); err == nil {
		t.Error("another tenant's")
	}
	left(t, k)
}

// asking does something while a stranger's record is asked for.
type asking struct {
	records.SnapshotStore

	meanwhile func()
}

// LoadSnapshot implements records.SnapshotStore.
func (a *asking) LoadSnapshot(ctx context.Context, tenant, id string) (records.Snapshot, error) {
	if tenant == "stranger" {
		a.meanwhile()
	}
	return a.SnapshotStore.LoadSnapshot(ctx, tenant, id)
}
