package planner

import "testing"

func TestLately(t *testing.T) {
	var l ttlCache[string, int]
	looks := 0
	look := func(ok bool) func() (int, bool) {
		return func() (int, bool) { looks++; return looks, ok }
	}
	if _, ok := l.get("a", look(false)); ok || looks != 1 {
		t.Fatalf("what is not there was found, after %d looks", looks)
	}
	for range 2 { // the second time nobody looks
		if v, ok := l.get("a", look(true)); !ok || v != 2 {
			t.Fatalf("found %d, %v, want the second look's 2", v, ok)
		}
	}
	if v, _ := l.get("b", look(true)); v != 3 {
		t.Fatalf("another key gave %d, want a look of its own", v)
	}
	l.since = l.since.Add(-2 * cacheTTL)
	if v, _ := l.get("a", look(true)); v != 4 {
		t.Fatalf("after a while it gave %d, want a new look", v)
	}
}
