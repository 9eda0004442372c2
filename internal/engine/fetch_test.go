package engine_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"pinfold/internal/engine"
	"pinfold/internal/engine/living"
	"pinfold/sandbox"
)

// A file that takes another one's name while that is fetched is never taken for it:
// it is described anew, or there is an error before anything was written.
func TestFetchWhileNamesChange(t *testing.T) {
	s := serve(t, engine.Options{}, nil)
	x := s.create(t, sandbox.Create{})
	put := func(name string, size int) {
		if err := x.WriteFile(soon(t), name, 0o644, int64(size), io.LimitReader(letters{}, int64(size))); err != nil {
			t.Fatal(err)
		}
	}
	for _, swaps := range []int{0, 1, 5, 1000} {
		put("f", 100)
		left, told := swaps, 0
		var out strings.Builder
		err := x.Fetch(soon(t), "f", func(info sandbox.FileInfo) (living.Part, error) {
			told = int(info.Size)
			if left > 0 {
				left--
				put("other", 50+left%2*100)
				if err := x.Move(soon(t), "other", "f"); err != nil {
					t.Fatal(err)
				}
			}
			return living.Part{Length: info.Size, To: &out}, nil
		})
		if swaps < 10 && (err != nil || out.Len() != told) || swaps > 10 && (code(err) != sandbox.CodeConflict || out.Len() != 0) {
			t.Errorf("%d changes: %v, %d bytes of a file of %d", swaps, err, out.Len(), told)
		}
	}
	wrong := fmt.Errorf("chosen")
	if err := x.Fetch(soon(t), "f", func(sandbox.FileInfo) (living.Part, error) {
		return living.Part{}, &sandbox.Error{Code: "x", Err: wrong}
	}); code(err) != "x" {
		t.Errorf("choose's own error: %v", err)
	}
	if err := x.Fetch(soon(t), "nothing", nil); code(err) != sandbox.CodeFileNotFound {
		t.Errorf("no file: %v", err)
	}
}

// letters is a file's content.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
