package snapshots

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// nothing keeps no records, and refuses those that it is to keep.
type nothing struct {
	records.SnapshotStore
	why error
}

func (n nothing) SaveSnapshot(context.Context, records.Snapshot) error              { return n.why }
func (n nothing) ListSnapshots(context.Context, string) ([]records.Snapshot, error) { return nil, nil }

func open(t *testing.T, o Options) *Keeper {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	k := New(o)
	if err := k.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// left wants the directory to be empty, and nothing to be counted.
func left(t *testing.T, k *Keeper) {
	t.Helper()
	if files, err := filepath.Glob(filepath.Join(k.o.Dir, "*")); err != nil || len(files) > 0 {
		t.Errorf("left: %q, %v", files, err)
	}
	if k.all != 0 || len(k.used) > 0 {
		t.Errorf("counted: %d, %+v", k.all, k.used)
	}
}

// A disk that takes no more is said to be full, and nothing is half kept.
func TestDiskFull(t *testing.T) {
	k := open(t, Options{Dir: filepath.Join(t.TempDir(), "s"), Records: nothing{}})
	w, err := k.Begin(t.Context(), "t", true)
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := w.f.Name()
	_ = w.f.Close()
	if w.f = full; os.Remove(name) != nil {
		t.Fatal("it had no name")
	}
	w.named = false
	if _, err := w.Write([]byte("x")); sandbox.AsError(err).Code != sandbox.CodeInsufficient || sandbox.AsError(err).Hint == "" {
		t.Errorf("%v", err)
	}
	w.Drop()
	left(t, k)
}

// What cannot be recorded is not kept.
func TestNotRecorded(t *testing.T) {
	why := &sandbox.Error{Code: sandbox.CodeInsufficient, Message: "full"}
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "s")} {
		k := open(t, Options{Dir: dir, Records: nothing{why: why}})
		w, err := k.Begin(t.Context(), "t", true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_, err = w.Keep(t.Context(), records.Snapshot{Info: sandbox.Snapshot{ID: "snp_a", ExpiresAt: time.Now().Add(time.Hour)}}, noNote)
		if !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
		if dir != "" {
			left(t, k)
		} else if len(k.nameless) > 0 || k.all != 0 {
			t.Errorf("%d contents, %d bytes", len(k.nameless), k.all)
		}
	}
}

// What is only for the moment has no name, so that nothing of it outlives us, and counts.
func TestForTheMoment(t *testing.T) {
	k := open(t, Options{Dir: filepath.Join(t.TempDir(), "s"), Records: nothing{}, Bytes: 10})
	w, err := k.Begin(t.Context(), "t", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("12345")); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(k.o.Dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := w.Write([]byte("6")); sandbox.AsError(err).Code != sandbox.CodeQuotaExceeded {
		t.Errorf("more than half of all: %v", err)
	}
	for range 2 {
		if b, err := io.ReadAll(w.Content().Reader()); err != nil || string(b) != "12345" {
			t.Errorf("%q, %v", b, err)
		}
	}
	w.Drop()
	left(t, k)
}
