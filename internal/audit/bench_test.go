package audit

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// BenchmarkRecord measures what a record adds to a run, its receipt included: one after
// another, and eight at a time, which share flushes. PINFOLD_BENCH_DIR is where the log
// lies: on a disk the flush is most of it, in /dev/shm there is none.
func BenchmarkRecord(b *testing.B) {
	for _, g := range []struct {
		name   string
		atOnce int
	}{{"alone", 0}, {"eight", 8}} {
		b.Run(g.name, func(b *testing.B) {
			dir, err := os.MkdirTemp(os.Getenv("PINFOLD_BENCH_DIR"), "audit")
			if err != nil {
				b.Fatal(err)
			}
			defer os.RemoveAll(dir)
			l, err := Open(Options{Dir: filepath.Join(dir, Dir)})
			if err != nil {
				b.Fatal(err)
			}
			e := event(1)
			b.ResetTimer()
			if g.atOnce == 0 {
				for b.Loop() {
					if _, err := l.Record(b.Context(), e); err != nil {
						b.Fatal(err)
					}
				}
			} else {
				b.SetParallelism(g.atOnce)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := l.Record(b.Context(), event(1)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.StopTimer()
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkVerify measures looking through a log, for each entry.
func BenchmarkVerify(b *testing.B) {
	const entries = 200_000
	dir := b.TempDir()
	l, err := Open(Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	key, err := ParseKey(l.PublicKey())
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	var tree edge
	var lines, hashes []byte
	salt := newSalt()
	for i := range int64(entries) {
		e := event(int(i)).Entry
		e.V, e.Index, e.SaltSHA256, e.Digests = 1, i, commitment(salt), map[string]string{"code": digest(salt, "code", nil), "stdout": digest(salt, "stdout", nil), "limits": digest(salt, "limits", nil)}
		leaf, err := makeLeaf(e)
		if err != nil {
			b.Fatal(err)
		}
		lines = appendLine(lines, leaf, salt)
		for _, h := range tree.add(tlog.RecordHash(leaf)) {
			hashes = append(hashes, h[:]...)
		}
	}
	for name, content := range map[string][]byte{entriesName: lines, hashesName: hashes} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		r, err := Verify(dir, Evidence{Key: key})
		if err != nil || r.Problem != nil || r.Entries != entries {
			b.Fatal(r, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/entries, "µs/entry")
}
