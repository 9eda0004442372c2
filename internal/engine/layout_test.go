package engine

import (
	"bytes"
	"context"
	"io"
	"testing"

	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Nothing that goes in takes the place of the program, by whatever way it comes;
// otherwise the run would be that of another program, without a word.
func TestNothingReplacesTheProgram(t *testing.T) {
	e, d := newEngine(t, always(fake.Script{Program: exits(fake.Exit{})}))
	input := func(name string, dir bool) runs.Input {
		return runs.Input{Path: name, Dir: dir, Mode: 0o755, Size: 1, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte("x"))), nil }}
	}
	for what, c := range map[string]struct {
		change func(*runs.Request)
		field  string // "" when it is all right
	}{
		"files":           {func(r *runs.Request) { r.Spec.Files = []sandbox.File{{Path: "a"}, {Path: "main.sh"}} }, "files[1].path"},
		"a file below it": {func(r *runs.Request) { r.Spec.Files = []sandbox.File{{Path: "main.sh/a"}} }, "files[0].path"},
		"inputs":          {func(r *runs.Request) { r.Inputs = []runs.Input{input("main.sh", false)} }, "files"},
		"a directory":     {func(r *runs.Request) { r.Inputs = []runs.Input{input("main.sh", true)} }, "files"},
		"one file twice":  {func(r *runs.Request) { r.Spec.Files = []sandbox.File{{Path: "b"}, {Path: "a"}, {Path: "a"}} }, "files[2].path"},
		"below a file":    {func(r *runs.Request) { r.Spec.Files = []sandbox.File{{Path: "a/b"}, {Path: "a"}} }, "files[1].path"},
		"files and inputs": {func(r *runs.Request) {
			r.Spec.Files, r.Inputs = []sandbox.File{{Path: "a"}}, []runs.Input{input("a", false)}
		}, "files"},
		"a mount":      {func(r *runs.Request) { r.Spec.Mounts = []sandbox.Mount{{Host: "/srv", Guest: sandbox.Home}} }, "mounts[0]"},
		"another name": {func(r *runs.Request) { r.Spec.Files = []sandbox.File{{Path: "main.py"}, {Path: "Main.sh"}} }, ""},
		"the file that is run": {func(r *runs.Request) {
			r.Spec.Code, r.Spec.Entrypoint, r.Inputs = "", "main.sh", []runs.Input{input("main.sh", false)}
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
