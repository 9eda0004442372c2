//go:build linux

package userns

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, file string
		want       Range
		ok         bool
	}{
		{"by name", "root:1:9\nann:100000:65536\n", Range{100000, 65536}, true},
		{"by number", "1000:200000:70000\n", Range{200000, 65536}, true},
		{"too small, then enough", "ann:5:10\nann:300000:2000\n", Range{300000, 2000}, true},
		{"somebody else's", "bob:100000:65536\n", Range{}, false},
		{"nonsense", "ann:x:y\nann:-5:65536\nann\n::\n", Range{}, false},
		{"empty", "", Range{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := parse(strings.NewReader(test.file), []string{"1000", "ann"})
			if got != test.want || ok != test.ok {
				t.Fatalf("got %v %v, want %v %v", got, ok, test.want, test.ok)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("ann:100000:65536\n")
	f.Fuzz(func(t *testing.T, file string) {
		r, ok := parse(strings.NewReader(file), []string{"ann"})
		if ok && (r.First <= 0 || r.Count < MinSubordinate || r.Count > 65536) {
			t.Fatalf("accepted %v", r)
		}
	})
}
