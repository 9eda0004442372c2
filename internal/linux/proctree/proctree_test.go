//go:build linux

package proctree

import (
	"os"
	"testing"
)

func TestReadSelf(t *testing.T) {
	u := Read(os.Getpid())
	if u.Tasks < 1 || u.MemoryBytes < 1<<16 {
		t.Fatalf("implausible reading of ourselves: %+v", u)
	}
}

func TestParseStatNameWithParenthesis(t *testing.T) {
	line := []byte("7 (a) b ) c) S 1 7 7 0 -1 4194560 10 0 0 0 3 4 5 6 20 0 9 0 100 200 300")
	cpu, threads := parseStat(line)
	if cpu != 18*10_000_000 || threads != 9 {
		t.Fatalf("got %d ns and %d threads", cpu, threads)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("7 (x) S 1 7 7 0 -1 4194560 10 0 0 0 3 4 5 6 20 0 9"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if cpu, threads := parseStat(b); cpu < 0 || threads < 0 || parseStatm(b) < 0 {
			t.Fatal("negative")
		}
	})
}
