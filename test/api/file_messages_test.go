package api

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

// What is refused is called by its name.
func TestFilesAreCalledByTheirName(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	for _, home := range []string{".", "/home/user", "/home"} {
		a := w.do(request{key: "alpha", method: "DELETE", path: box + "/files?path=" + home})
		if e := a.code(t); a.status != 400 || e.Code != sandbox.CodePathInvalid || !strings.Contains(e.Message, "itself cannot be removed") || e.Hint == "" {
			t.Errorf("%s: %d %s", home, a.status, a.body)
		}
	}
	w.must(200, request{key: "alpha", method: "PUT", path: box + "/files?path=dir/file", body: []byte("x")})
	if e := w.do(request{key: "alpha", method: "GET", path: box + "/files?path=dir"}).code(t); e.Message != "that is a directory, and no regular file" {
		t.Errorf("%+v", e)
	}
}
