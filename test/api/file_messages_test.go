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
	for _, place := range []string{".", "/home/user", "/home", "/tmp", "/var/tmp", "/var", "/dev/shm", "/"} {
		a := w.do(request{key: "alpha", method: "DELETE", path: box + "/files?path=" + place})
		if e := a.code(t); a.status != 400 || e.Code != sandbox.CodePathInvalid || !strings.Contains(e.Message, "itself cannot be removed") || e.Hint == "" {
			t.Errorf("%s: %d %s", place, a.status, a.body)
		}
	}
	w.must(200, request{key: "alpha", method: "PUT", path: box + "/files?path=dir/file", body: []byte("x")})
	if e := w.do(request{key: "alpha", method: "GET", path: box + "/files?path=dir"}).code(t); e.Message != "that is a directory, and no regular file" || !strings.Contains(e.Hint, "/archive") {
		t.Errorf("%+v", e)
	}
	w.must(200, request{key: "alpha", method: "PUT", path: box + "/files?path=/tmp/file", body: []byte("x")})
	w.must(204, request{key: "alpha", method: "DELETE", path: box + "/files?path=/tmp/file"})
	w.driver.Machines()[0].Files.PutPipe("pipe")
	if e := w.do(request{key: "alpha", method: "GET", path: box + "/files?path=pipe"}).code(t); e.Message != "that is a pipe, a socket or a device, and no regular file" || !strings.HasPrefix(e.Hint, "only regular files can be read") || strings.Contains(e.Hint, "archive") {
		t.Errorf("%+v", e)
	}
}
