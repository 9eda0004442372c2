package hostfiles

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Whatever the pieces in which it comes, the file has the content; and zeros take
// no room.
func TestSparseFile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	for range 50 {
		content := make([]byte, random.IntN(100_000))
		for i := 0; i < len(content); { // runs of zeros and of others
			n := min(random.IntN(3*sparseBlock), len(content)-i)
			if random.IntN(2) == 0 {
				for k := range n {
					content[i+k] = byte(random.IntN(3))
				}
			}
			i += n + 1
		}
		name := filepath.Join(t.TempDir(), "f")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		out := &sparseFile{file: f}
		for rest := content; len(rest) > 0; {
			n := min(1+random.IntN(20_000), len(rest))
			if k, err := out.Write(rest[:n]); k != n || err != nil {
				t.Fatal(k, err)
			}
			rest = rest[n:]
		}
		if err := out.end(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%d bytes of %d, or others: %v", len(got), len(content), err)
		}
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "zeros"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := &sparseFile{file: f}
	if n, err := io.CopyN(out, zeroReader{}, 64<<20); n != 64<<20 || err != nil {
		t.Fatal(n, err)
	}
	if err := out.end(); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil || info.Size() != 64<<20 {
		t.Fatal(info, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 > 1<<20 {
		t.Errorf("64 MiB of zeros take %d bytes", st.Blocks*512)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }
