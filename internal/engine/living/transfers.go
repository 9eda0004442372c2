package living

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// movedFile is a file that a request has brought in or out: its content's SHA-256, of what
// was asked for of it.
type movedFile struct {
	path string
	sum  [sha256.Size]byte
}

// transfer counts what one request moves into a sandbox, or out of it. It is for one
// goroutine.
type transfer struct {
	files []movedFile
	bytes int64
}

// maxFileLines bounds what is recorded of single files, in bytes.
const maxFileLines = 64 << 10

// lines say of each file what sha256sum(1) prints, and of those that have no room together
// what it prints of their lines.
func (t *transfer) lines() []byte {
	var all []byte
	var rest hash.Hash
	for _, f := range t.files {
		line := fmt.Sprintf("%x  %s\n", f.sum, f.path)
		if rest == nil && len(all)+len(line) > maxFileLines {
			rest = sha256.New()
		}
		if rest != nil {
			rest.Write([]byte(line))
		} else {
			all = append(all, line...)
		}
	}
	if rest != nil {
		all = fmt.Appendf(all, "%x  -\n", rest.Sum(nil))
	}
	return all
}

// tally is the content of one file on its way.
type tally struct {
	hash hash.Hash
	n    int64
}

func newTally() *tally { return &tally{hash: sha256.New()} }

func (c *tally) count(b []byte) {
	c.hash.Write(b)
	c.n += int64(len(b))
}

// moved adds a file.
func (t *transfer) moved(path string, c *tally) {
	f := movedFile{path: path}
	c.hash.Sum(f.sum[:0])
	t.files = append(t.files, f)
	t.bytes += c.n
}

// Out has f read files as one answer, and records what went out. Where what went out cannot
// be recorded and must be, the error says so, and the answer cannot be taken for whole.
func (s *Sandbox) Out(ctx context.Context, name string, f func(*Files) error) error {
	files, err := s.Files(ctx)
	if err != nil {
		return err
	}
	if s.manager.auditor == nil {
		return f(files)
	}
	if err := s.manager.recordable(); err != nil {
		return err
	}
	files.out = &transfer{}
	err = f(files)
	if unrecorded := s.attestFiles(ctx, sandbox.AuditFilesOut, name, files.out, err); err == nil {
		err = unrecorded
	}
	return err
}

// Incoming is a sandbox as one request writes files to it. It is for one goroutine.
type Incoming struct {
	*Sandbox

	in *transfer      // nil: nobody records it
	at map[string]int // where a path's file is in it
}

// In has f write files, and records what came in, also where it failed: what a failed request
// has written it removes, as far as the program lets it, which may have read it before.
func (s *Sandbox) In(ctx context.Context, name string, f func(*Incoming) error) error {
	if s.manager.auditor == nil {
		return f(&Incoming{Sandbox: s})
	}
	if err := s.manager.recordable(); err != nil {
		return err
	}
	i := &Incoming{Sandbox: s, in: &transfer{}, at: map[string]int{}}
	err := f(i)
	if unrecorded := s.attestFiles(ctx, sandbox.AuditFilesIn, name, i.in, err); err == nil {
		err = unrecorded
	}
	return err
}

// WriteFile is as the sandbox's.
func (i *Incoming) WriteFile(ctx context.Context, name string, mode uint32, size int64, r io.Reader) error {
	if i.in == nil {
		return i.Sandbox.WriteFile(ctx, name, mode, size, r)
	}
	c := newTally()
	err := i.Sandbox.WriteFile(ctx, name, mode, size, &talliedReader{r, c})
	if err == nil || c.n > 0 {
		i.at[i.Absolute(name)] = len(i.in.files)
		i.in.moved(i.Absolute(name), c)
	}
	return err
}

// Move is as the sandbox's: what has come in may get its name by that.
func (i *Incoming) Move(ctx context.Context, from, to string) error {
	err := i.Sandbox.Move(ctx, from, to)
	if n, came := i.at[i.Absolute(from)]; came && err == nil {
		i.in.files[n].path = i.Absolute(to)
	}
	return err
}

type talliedReader struct {
	from  io.Reader
	tally *tally
}

func (r *talliedReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	r.tally.count(b[:n])
	return n, err
}

type talliedWriter struct {
	to    io.Writer
	tally *tally
}

func (w *talliedWriter) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	w.tally.count(b[:n])
	return n, err
}

// Sized passes on how much there will be.
func (w *talliedWriter) Sized(n int64) {
	if to, ok := w.to.(Sized); ok {
		to.Sized(n)
	}
}

// attestFiles records what was moved, if anything was. The error is where it must not have
// been without that.
func (s *Sandbox) attestFiles(ctx context.Context, kind sandbox.AuditKind, name string, t *transfer, failed error) error {
	if len(t.files) == 0 {
		return nil
	}
	e := records.FilesEvent(kind, s.info.ID, s.Absolute(name), int64(len(t.files)), t.bytes, t.lines())
	if failed != nil {
		e.Entry.Error = sandbox.AsError(failed).Code
	}
	e.Entry.Isolation = records.Wall(s.machine.Plan.Posture)
	_, err := s.attestBy(ctx, e, records.KeyOf(ctx))
	if err != nil && s.manager.auditor.Strict() {
		return err
	}
	return nil
}
