package paging

import (
	"strings"
	"testing"
	"time"

	"pinfold/internal/engine/records"
)

func TestNanosStayInTheirBounds(t *testing.T) {
	for _, c := range []struct {
		at   time.Time
		want int64
	}{
		{time.Unix(0, 5), 5},
		{time.Time{}, -1 << 63},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 1<<63 - 1},
	} {
		if got := Nanos(c.at); got != c.want {
			t.Errorf("%v is %d, not %d", c.at, got, c.want)
		}
	}
	now := time.Now()
	if !Time(Nanos(now)).Equal(now) {
		t.Error("a time changed")
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("", false)
	f.Add(Cursor(Place{At: -5, ID: "run_a.b"}, true), true)
	f.Add("bjEuYQ", false)
	f.Fuzz(func(t *testing.T, cursor string, oldest bool) {
		plan, err := Check(records.Query{Cursor: cursor, Oldest: oldest})
		if err != nil || cursor == "" {
			if plan.After != nil {
				t.Fatal("a place from no cursor")
			}
			return
		}
		again := Cursor(*plan.After, oldest)
		second, err := Check(records.Query{Cursor: again, Oldest: oldest})
		if err != nil || *second.After != *plan.After {
			t.Fatalf("%q and %q are not the same place: %v", cursor, again, err)
		}
		if _, err := Check(records.Query{Cursor: again, Oldest: !oldest}); err == nil {
			t.Fatal("a cursor of the other order was taken")
		}
		if strings.ContainsAny(again, "+/=&?# ") {
			t.Fatalf("%q must be escaped in an address", again)
		}
	})
}
