package guest

import (
	"bytes"
	"testing"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// However the lines of a watch are cut, the same comes out, every change has
// been checked, and no more than a line is kept.
func FuzzWatchReader(f *testing.F) {
	f.Add([]byte("{\"kind\":\"ready\"}\n{\"kind\":\"created\",\"path\":\"a\"}\n{\"kind\":\"overflow\"}\n"), 7)
	f.Add([]byte("{\"kind\":\"created\",\"path\":\"../a\"}\n"), 1)
	f.Add(bytes.Repeat([]byte("x"), wire.MaxWatchLine+1), 100)
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
		if len(whole.part) > wire.MaxWatchLine {
			t.Fatalf("%d bytes are kept", len(whole.part))
		}
		for _, e := range all {
			if e.Path != "" && sandbox.CheckGuestPath("", e.Path) != nil {
				t.Fatalf("%q was let through", e.Path)
			}
		}
	})
}
