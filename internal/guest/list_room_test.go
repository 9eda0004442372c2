package guest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/headroom"
)

// A listing asks for memory while it comes in. One that gets none fails without
// anything being wrong with the guest.
func TestListAsksForRoom(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	const files, long = 300, 250
	for i := range files {
		if err := os.WriteFile(filepath.Join(l.home, fmt.Sprintf("%03d", i)+strings.Repeat("x", long-3)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	full := errors.New("full")
	var taken, most int64
	ctx := headroom.With(deadline(t), func(bytes int64) error {
		if taken += bytes; taken > most {
			return full
		}
		return nil
	})
	if got, err := l.List(ctx, ".", 1, 1000); !errors.Is(err, full) || len(got.Items) > 0 {
		t.Errorf("%d entries, %v", len(got.Items), err)
	}
	taken, most = 0, 1<<20
	again := context.WithoutCancel(ctx)
	for range 2 {
		if got, err := l.List(again, ".", 1, 1000); err != nil || len(got.Items) != files || taken < 3*files*long {
			t.Fatalf("%d entries, %d bytes, %v", len(got.Items), taken, err)
		}
		most += taken
	}
}
