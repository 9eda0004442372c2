package guest

import (
	"bytes"
	"testing"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// However the stream of a watch is cut, the same comes out, every change has
// been checked, and no more than a change is kept.
func FuzzWatchReader(f *testing.F) {
	var good []byte
	for _, e := range []wire.WatchEvent{{Kind: wire.WatchReady}, {Kind: wire.WatchCreated, Path: "a"}, {Kind: wire.WatchOverflow}} {
		good = wire.AppendWatchEvent(good, &e)
	}
	f.Add(good, 7)
	f.Add(wire.AppendWatchEvent(nil, &wire.WatchEvent{Kind: wire.WatchCreated, Path: "../a"}), 1)
	f.Add(bytes.Repeat([]byte{wire.MaxWatchEvent >> 8}, wire.MaxWatchEvent+1), 100)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var whole, parts watchReader
		all, err := whole.read(b)
		cut = min(max(cut, 0), len(b))
		first, err1 := parts.read(b[:cut])
		var second []wire.WatchEvent
		err2 := err1
		if err1 == nil {
			second, err2 = parts.read(b[cut:])
		}
		if (err == nil) != (err2 == nil) {
			t.Fatalf("whole: %v, in parts: %v", err, err2)
		}
		if err == nil && len(all) != len(first)+len(second) {
			t.Fatalf("%d changes, in parts %d and %d", len(all), len(first), len(second))
		}
		if len(whole.part) > wire.MaxWatchEvent {
			t.Fatalf("%d bytes are kept", len(whole.part))
		}
		for _, e := range all {
			if e.Path != "" && sandbox.CheckGuestPath("", e.Path) != nil {
				t.Fatalf("%q was let through", e.Path)
			}
		}
	})
}
