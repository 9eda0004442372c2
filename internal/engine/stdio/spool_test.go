package stdio

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// What is kept are the last bytes, exactly as many as was said, however they came,
// and in no more memory.
func TestSpoolKeepsTheLastBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int64{1, 10, ringChunk, 3*ringChunk + 7, 1 << 20} {
		s := &NewSpool(size).streams[0]
		var all []byte
		for int64(len(all)) < 4*size {
			piece := make([]byte, 1+r.Int64N(2*size))
			for i := range piece {
				piece[i] = byte(r.Uint32())
			}
			_, _ = s.Write(piece)
			all = append(all, piece...)
			want := all[max(0, int64(len(all))-size):]
			got, cut := s.kept()
			if !bytes.Equal(got, want) || cut != (len(want) < len(all)) {
				t.Fatalf("of %d bytes with room for %d: %d kept, cut %v", len(all), size, len(got), cut)
			}
			if s.held() > size {
				t.Fatalf("holds %d bytes, not %d", s.held(), size)
			}
			at := int64(len(all)) - r.Int64N(int64(len(want))+1)
			if read := readOutput(t, s.open(at, nil)); !bytes.Equal(read, all[at:]) {
				t.Fatalf("from %d on: %d of %d bytes", at, len(read), int64(len(all))-at)
			}
		}
	}
}

// readOutput reads what is there from a reader's place on.
func readOutput(t *testing.T, o *Reader) (all []byte) {
	t.Helper()
	defer o.Close()
	for {
		chunk, at, err := o.take(maxChunk)
		if err != nil && !errors.Is(err, io.EOF) || at < 0 {
			t.Fatal(at, err)
		}
		if len(chunk) == 0 {
			return all
		}
		all = append(all, chunk...)
	}
}
