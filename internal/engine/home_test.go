package engine_test

import (
	"context"
	"errors"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/filetree"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// homed is a server of whose template the home has one file, with a text.
func homed(t *testing.T, has image.Home, homes func(w *filetree.Writer) error) *served {
	t.Helper()
	return serve(t, engine.Options{
		Template: func(name string) (image.Template, error) {
			return image.Template{Name: name, ID: "one", User: image.Usual(), Home: has, Commands: map[string]string{"sh": "/bin/sh"}}, nil
		},
		Home: func(_ context.Context, _ image.Template, place string, w *filetree.Writer) error {
			if err := w.Entry(filetree.Entry{Kind: filetree.Place, Name: place}); err != nil {
				return err
			}
			return homes(w)
		},
	}, func(driver.Plan) fake.Script { return fake.Script{} })
}

// oneFile is a home with that file.
func oneFile(w *filetree.Writer) error {
	err := w.Entry(filetree.Entry{Kind: filetree.File, Name: "profile", Mode: 0o644, Size: 5})
	return errors.Join(err, w.Data([]byte("image")), w.Entry(filetree.Entry{Kind: filetree.Up, Mode: 0o755}))
}

// Living sandboxes and runs begin with a copy of what the image has in the home; what is
// forked, or made of a snapshot, with what the first one had.
func TestHomeOfAnImage(t *testing.T) {
	s := homed(t, image.Home{Bytes: 4096, Entries: 1}, oneFile)
	x, y := s.create(t, sandbox.Create{}), s.create(t, sandbox.Create{})
	holds(t, x, "profile", "image")
	put(t, x, "profile", "changed")
	put(t, x, "more", "text")
	holds(t, y, "profile", "image")
	if _, err := x.Exec(soon(t), sandbox.Command{Args: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	snap := snapshot(t, x)
	made, err := s.Fork(soon(t), x, sandbox.ForkSandbox{})
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range append(made, s.create(t, sandbox.Create{Snapshot: snap.ID})) {
		holds(t, z, "profile", "changed")
		holds(t, z, "more", "text")
	}
	r, err := s.Run(soon(t), asks("alice", "x"))
	if err != nil || r.Status != sandbox.StatusSucceeded {
		t.Fatalf("%+v, %v", r, err)
	}
}

// A home that cannot be copied makes no sandbox, and leaves none; one that does not fit is
// refused before.
func TestHomeThatCannotBeCopied(t *testing.T) {
	broken := errors.New("the disk broke")
	s := homed(t, image.Home{Bytes: 4096, Entries: 1}, func(*filetree.Writer) error { return broken })
	if x, err := s.Create(soon(t), "alice", sandbox.Create{}); err == nil {
		t.Errorf("made: %v", x)
	}
	if r, err := s.Run(soon(t), asks("alice", "x")); err == nil && r.Status == sandbox.StatusSucceeded {
		t.Errorf("run: %+v", r)
	}
	if n := s.driver.Living(); n != 0 {
		t.Errorf("%d machines live", n)
	}
	s = homed(t, image.Home{Bytes: 300 << 20, Entries: 1}, oneFile)
	_, err := s.Create(soon(t), "alice", sandbox.Create{})
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeLimitInvalid || e.Field != "limits.disk_bytes" {
		t.Errorf("too large: %v", err)
	} else if fix, ok := e.Advice.Find(sandbox.FixSet); !ok || string(fix.Value) != "1073741824" {
		t.Errorf("the advice is %+v", e.Advice)
	}
	s.create(t, sandbox.Create{Limits: sandbox.Limits{DiskBytes: 1 << 30}})
	s = homed(t, image.Home{Entries: 20_000}, oneFile)
	if _, err := s.Create(soon(t), "alice", sandbox.Create{}); sandbox.AsError(err) == nil || sandbox.AsError(err).Field != "limits.inodes" {
		t.Errorf("too many: %v", err)
	}
}
