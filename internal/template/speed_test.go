//go:build linux

package template

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
)

// writeLarge writes a tar of so many files with so many bytes each that do not compress.
func writeLarge(w io.Writer, files int, each int64) error {
	source := rand.NewChaCha8([32]byte{})
	tw := tar.NewWriter(w)
	block := make([]byte, 64<<10)
	for i := range files {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("usr/lib/%d/%d", i%50, i), Size: each, Mode: 0o644}); err != nil {
			return err
		}
		_, _ = source.Read(block)
		for left := each; left > 0; left -= int64(len(block)) {
			if _, err := tw.Write(block[:min(left, int64(len(block)))]); err != nil {
				return err
			}
		}
	}
	return tw.Close()
}

// How fast a layer of 1 GiB is unpacked, in bytes of its files: what the disk and the
// hashes cost, and nothing of a network.
func BenchmarkUnpack(b *testing.B) {
	const files, each = 4096, 256 << 10
	var archive bytes.Buffer
	if err := writeLarge(&archive, files, each); err != nil {
		b.Fatal(err)
	}
	for name, content := range map[string][]byte{"plain": archive.Bytes(), "gzip": gzipped(b, archive.Bytes()), "zstd": zstandard(b, archive.Bytes())} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(files * each)
			for b.Loop() {
				s := open(b, Limits{})
				if _, err := s.Import(b.Context(), bytes.NewReader(content), Import{Name: "large", Format: Root}); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := os.RemoveAll(s.dir); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
