package guest_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// How fast files move through one connection. The home is in memory, as in a
// sandbox, so that no disk is measured.
const benchSize = 64 << 20

func benchAgent(b *testing.B) *live {
	b.Helper()
	b.Setenv("TMPDIR", "/dev/shm")
	return startAgent(b, mode{pid1: true})
}

func BenchmarkWriteFile(b *testing.B) {
	l := benchAgent(b)
	content := make([]byte, benchSize)
	b.SetBytes(benchSize)
	for b.Loop() {
		if err := l.WriteFile(b.Context(), "big", 0o644, benchSize, io.LimitReader(bytes.NewReader(content), benchSize)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadFile(b *testing.B) {
	l := benchAgent(b)
	if err := os.WriteFile(filepath.Join(l.home, "big"), make([]byte, benchSize), 0o666); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchSize)
	for b.Loop() {
		if n, err := l.ReadFile(b.Context(), "big", benchSize, io.Discard); err != nil || n != benchSize {
			b.Fatal(fmt.Errorf("%d bytes: %w", n, err))
		}
	}
}
