package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pinfold/internal/archive"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Files that a request moves into a living sandbox or out of it are in the audit log: one
// entry for each request, with the key that asked, how much it was, and what it was.
func TestFilesMovedAreRecorded(t *testing.T) {
	log := &audits{}
	engine, _ := newEngine(t, always(fake.Script{}), func(o *Options) { o.Auditor = log })
	box, err := engine.Create(t.Context(), "local", sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := records.WithKey(t.Context(), "key_other")
	in := func(name, text string) error {
		return box.In(ctx, name, func(to *living.Incoming) error {
			return to.WriteFile(ctx, name, 0o644, int64(len(text)), strings.NewReader(text))
		})
	}
	if err := errors.Join(in("a.txt", "one"), in("b.txt", "")); err != nil {
		t.Fatal(err)
	}
	if err := box.In(ctx, "c.txt", func(to *living.Incoming) error {
		return to.WriteFile(ctx, "c.txt", 0o644, 1, iotest.ErrReader(io.ErrUnexpectedEOF))
	}); err == nil {
		t.Error("a body that broke off was written")
	}
	if err := box.In(ctx, "cut.txt", func(to *living.Incoming) error {
		return to.WriteFile(ctx, "cut.txt", 0o644, 4, io.MultiReader(strings.NewReader("two"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	}); err == nil {
		t.Error("a body that broke off was written")
	}
	if err := box.In(ctx, ".", func(to *living.Incoming) error { // the program in it does not let it be tidied up
		if err := to.WriteFile(ctx, "whole", 0o644, 3, strings.NewReader("six")); err != nil {
			return err
		}
		return io.ErrNoProgress
	}); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
	if err := box.Out(ctx, "a.txt", func(f *living.Files) error {
		return f.Fetch(ctx, "a.txt", func(sandbox.FileInfo) (living.Part, error) {
			return living.Part{Offset: 1, Length: 2, To: io.Discard}, nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := box.Out(ctx, ".", func(f *living.Files) error {
		_, err := archive.Pack(ctx, f, ".", archive.Tar, archive.Limits{}, &packed)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := box.In(ctx, "copy", func(to *living.Incoming) error {
		_, err := archive.Unpack(ctx, &packed, "copy", archive.Tar, archive.Limits{}, to)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the reader has gone")
	if err := box.Out(ctx, "a.txt", func(f *living.Files) error {
		if _, err := f.ReadFile(ctx, "a.txt", 0, -1, io.Discard); err != nil {
			return err
		}
		return broken
	}); !errors.Is(err, broken) {
		t.Error(err)
	}

	line := func(text, name string) string {
		return fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), box.Absolute(name))
	}
	want := []string{
		"files_in a.txt 1 3\n" + line("one", "a.txt"),
		"files_in b.txt 1 0\n" + line("", "b.txt"),
		"files_in cut.txt 1 3 internal\n" + line("two", "cut.txt"),
		"files_in . 1 3 internal\n" + line("six", "whole"),
		"files_out a.txt 1 2\n" + line("ne", "a.txt"),
		"files_out . 2 6\n" + line("one", "a.txt") + line("six", "whole"), // of the empty one nothing went out
		"files_in copy 3 6\n" + line("one", "copy/a.txt") + line("", "copy/b.txt") + line("six", "copy/whole"),
		"files_out a.txt 1 3 internal\n" + line("one", "a.txt"),
	}
	var got []string
	for _, one := range log.all() {
		e := one.Entry
		if e.Kind != sandbox.AuditFilesIn && e.Kind != sandbox.AuditFilesOut {
			continue
		}
		if e.Key != "key_other" || e.Tenant != "local" || e.Sandbox != box.ID() || e.Isolation == nil {
			t.Errorf("%+v", e)
		}
		head := fmt.Sprintf("%s %s %d %d %s", e.Kind, strings.TrimPrefix(e.ID, box.Absolute(".")+"/"), e.Files, e.Bytes, e.Error)
		if e.ID == box.Absolute(".") {
			head = strings.Replace(head, e.ID, ".", 1)
		}
		got = append(got, strings.TrimSpace(head)+"\n"+string(one.Parts["files"]))
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("entry %d of %d: %q, not %q", i, len(got), got[min(i, len(got)-1)], want[min(i, len(want)-1)])
		}
	}
}

// failing is an auditor that cannot write: nothing may happen that it should have recorded,
// and what had begun when it broke is no success.
type failing struct {
	audits

	check, record error
}

func (f *failing) Strict() bool { return true }
func (f *failing) Check() error { return f.check }

func (f *failing) Record(ctx context.Context, e records.Event) (*sandbox.Receipt, error) {
	if f.record != nil {
		return nil, f.record
	}
	return f.audits.Record(ctx, e)
}

func TestFilesThatCannotBeRecorded(t *testing.T) {
	log := &failing{}
	engine, _ := newEngine(t, always(fake.Script{}), func(o *Options) { o.Auditor = log })
	box, err := engine.Create(t.Context(), "local", sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	unavailable := &sandbox.Error{Code: sandbox.CodeAuditUnavailable}
	in := func() error {
		return box.In(t.Context(), "a", func(to *living.Incoming) error {
			return to.WriteFile(t.Context(), "a", 0o644, 1, strings.NewReader("x"))
		})
	}
	out := func(w io.Writer) error {
		return box.Out(t.Context(), "a", func(f *living.Files) error {
			_, err := f.ReadFile(t.Context(), "a", 0, -1, w)
			return err
		})
	}
	log.check = unavailable
	if err := in(); !errors.Is(err, unavailable) {
		t.Error(err)
	}
	if _, err := box.Stat(t.Context(), "a"); sandbox.AsError(err).Code != sandbox.CodeFileNotFound {
		t.Errorf("it was written all the same: %v", err)
	}
	log.check = nil
	if err := in(); err != nil { // the control
		t.Fatal(err)
	}
	log.check = unavailable
	var b bytes.Buffer
	if err := out(&b); !errors.Is(err, unavailable) || b.Len() > 0 {
		t.Errorf("%v, %d bytes came out", err, b.Len())
	}
	log.check, log.record = nil, unavailable
	if err := out(&b); !errors.Is(err, unavailable) {
		t.Error(err)
	}
	log.record = nil
}
