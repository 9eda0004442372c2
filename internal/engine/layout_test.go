package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// Nothing that goes in takes the place of the program, by whatever way it comes;
// otherwise the run would be that of another program, without a word.
func TestNothingReplacesTheProgram(t *testing.T) {
	e, d := newEngine(t, always(fake.Script{Program: exits(fake.Exit{})}))
	input := func(name string, dir bool) Input {
		return Input{Path: name, Dir: dir, Mode: 0o755, Size: 1, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte("x"))), nil }}
	}
	for what, c := range map[string]struct {
		change func(*Request)
		field  string // "" when it is all right
	}{
		"files":            {func(r *Request) { r.Spec.Files = []sandbox.File{{Path: "a"}, {Path: "main.sh"}} }, "files[1].path"},
		"a file below it":  {func(r *Request) { r.Spec.Files = []sandbox.File{{Path: "main.sh/a"}} }, "files[0].path"},
		"inputs":           {func(r *Request) { r.Inputs = []Input{input("main.sh", false)} }, "files"},
		"a directory":      {func(r *Request) { r.Inputs = []Input{input("main.sh", true)} }, "files"},
		"one file twice":   {func(r *Request) { r.Spec.Files = []sandbox.File{{Path: "b"}, {Path: "a"}, {Path: "a"}} }, "files[2].path"},
		"below a file":     {func(r *Request) { r.Spec.Files = []sandbox.File{{Path: "a/b"}, {Path: "a"}} }, "files[1].path"},
		"files and inputs": {func(r *Request) { r.Spec.Files, r.Inputs = []sandbox.File{{Path: "a"}}, []Input{input("a", false)} }, "files"},
		"a mount":          {func(r *Request) { r.Spec.Mounts = []sandbox.Mount{{Host: "/srv", Guest: sandbox.Home}} }, "mounts[0]"},
		"another name":     {func(r *Request) { r.Spec.Files = []sandbox.File{{Path: "main.py"}, {Path: "Main.sh"}} }, ""},
		"the file that is run": {func(r *Request) {
			r.Spec.Code, r.Spec.Entrypoint, r.Inputs = "", "main.sh", []Input{input("main.sh", false)}
		}, ""},
	} {
		made := len(d.Machines())
		req := shell(sandbox.Limits{})
		c.change(&req)
		_, err := e.Run(context.Background(), req)
		if c.field == "" {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if got := sandbox.AsError(err); err == nil || got.Field != c.field || got.Code != sandbox.CodeSpecInvalid {
			t.Errorf("%s: %v, want one about %s", what, err, c.field)
		}
		if len(d.Machines()) != made {
			t.Errorf("%s: a sandbox was made", what)
		}
	}
}

// What a request may cost before it is admitted is in proportion to its size, also
// where its paths have millions of directories.
func TestManyDirectoriesCostLittle(t *testing.T) {
	e, _ := newEngine(t, always(fake.Script{Program: exits(fake.Exit{})}))
	req := shell(sandbox.Limits{})
	for i := range sandbox.MaxFiles {
		req.Spec.Files = append(req.Spec.Files, sandbox.File{Path: fmt.Sprintf("%05d", i) + strings.Repeat("/a", (sandbox.MaxPathBytes-5)/2)})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := e.prepare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took, text := after.TotalAlloc-before.TotalAlloc, uint64(sandbox.MaxFiles*sandbox.MaxPathBytes); took > 5*text {
		t.Errorf("%d bytes of paths took %d bytes of memory", text, took)
	}
}
