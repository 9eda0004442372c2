package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// allocated is how many bytes f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc) //nolint:gosec // far below
}

// chunked is a request whose length nobody announced.
func chunked(body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/runs", io.NopCloser(body))
	r.ContentLength = -1
	r.Header.Set("Content-Type", typeJSON)
	return r
}

// A body that turns out to be too large has cost no memory. One that is taken
// costs its own size once, before anything is made of it.
func TestBodiesOfUnknownLengthKeepMemoryFlat(t *testing.T) {
	dir := t.TempDir()
	s := newServer(Options{SpoolDir: dir})
	const limit = 96 << 20
	var spec sandbox.Spec
	var err error
	cost := allocated(func() {
		_, err = s.readJSON(httptest.NewRecorder(), chunked(io.LimitReader(zeros{}, 100<<20)), "t", limit, &spec)
	})
	if sandbox.AsError(err).Code != sandbox.CodeTooLarge || cost > 4<<20 {
		t.Errorf("100 MiB cost %d MiB: %v", cost>>20, err)
	}
	const size = 32 << 20
	text := `{"language": "sh", "code": "` + strings.Repeat("x", size) + `"}`
	done, err := s.readJSON(httptest.NewRecorder(), chunked(strings.NewReader(text)), "t", limit, &spec)
	if err != nil || len(spec.Code) != size || s.bodies.used < size {
		t.Fatalf("%d bytes, %d accounted for, %v", len(spec.Code), s.bodies.used, err)
	}
	done()
	b := &bodyReader{in: strings.NewReader(text), share: new(budget).share("t"), limit: limit, dir: dir}
	if cost = allocated(func() { _, err = b.read(-1) }); err != nil || cost > size+4<<20 {
		t.Errorf("reading %d MiB cost %d MiB: %v", size>>20, cost>>20, err)
	}
	if s.bodies.used != 0 {
		t.Errorf("%d are held", s.bodies.used)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// However the pieces come, the body is what was sent.
func TestBodiesArriveWhole(t *testing.T) {
	pattern := []byte("0123456789abcdef")
	for _, size := range []int{0, 1, freeBody - 1, freeBody, freeBody + 1, heldBody - 1, heldBody, heldBody + 1, 2*heldBody - 1, 2 * heldBody, 3*heldBody + 7} {
		want := bytes.Repeat(pattern, size/len(pattern)+1)[:size]
		for _, limit := range []int{size, size + 1, size + 5*heldBody} {
			for _, announced := range []int{-1, size, 10} {
				b := &bodyReader{in: halves{bytes.NewReader(want)}, share: new(budget).share("t"), limit: int64(limit), dir: t.TempDir()}
				got, err := b.read(int64(announced))
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d bytes, limit %d, announced %d: %d bytes, %v", size, limit, announced, len(got), err)
				}
			}
		}
		if size > 0 {
			b := &bodyReader{in: bytes.NewReader(want), share: new(budget).share("t"), limit: int64(size - 1), dir: t.TempDir()}
			if _, err := b.read(-1); sandbox.AsError(err).Code != sandbox.CodeTooLarge {
				t.Fatalf("%d bytes where %d are allowed: %v", size, size-1, err)
			}
		}
	}
}

// A disk that is full refuses large bodies in clear words.
func TestBodiesWithoutAPlace(t *testing.T) {
	b := &bodyReader{in: io.LimitReader(zeros{}, 2*heldBody), share: new(budget).share("t"), limit: 8 * heldBody, dir: "/nonexistent"}
	if _, err := b.read(-1); sandbox.AsError(err).Code != sandbox.CodeInsufficient || strings.Contains(fmt.Sprint(err), "/nonexistent") {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// halves gives half of what is asked for, and its end by itself.
type halves struct{ r io.Reader }

func (h halves) Read(b []byte) (int, error) { return h.r.Read(b[:(len(b)+1)/2]) }
