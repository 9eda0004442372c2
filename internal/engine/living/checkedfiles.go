package living

import (
	"bytes"
	"context"
	"io"
	"strings"

	"pinfold/internal/engine/execution"
	"pinfold/internal/headroom"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Files are a sandbox's files as one answer has them, which may be many: its gate looks at
// all of them. It is for one goroutine.
type Files struct {
	*Sandbox

	gate execution.Gate // nil: nothing is looked at
	room int64          // bytes that the caller's request has been given for a whole file
	out  *transfer      // nil: nobody records what goes out
}

// Files begins an answer.
func (s *Sandbox) Files(ctx context.Context) (*Files, error) {
	if s.gate == nil {
		return &Files{Sandbox: s}, nil
	}
	g, err := s.newGate(ctx)
	if err != nil {
		return nil, sandbox.AsError(err)
	}
	return &Files{Sandbox: s, gate: g}, nil
}

// Checked says that what comes out may be something else than what is inside, and how long
// it is only when it is read (see ReadFile).
func (f *Files) Checked() bool { return f.gate != nil }

// Outcome is what the gate has made of the files so far; nil without one.
func (f *Files) Outcome() *sandbox.GateResult {
	if f.gate == nil {
		return nil
	}
	r := f.gate.Outcome("", "", "")
	r.Context = nil // that is for what processes print
	return r
}

// Sized is a writer that wants to know before the first byte how many there will be.
type Sized interface{ Sized(n int64) }

// ReadFile is as the sandbox's, of what the gate lets out; a writer that is Sized learns how
// much that is. A file that does not come out is an error of code withheld.
func (f *Files) ReadFile(ctx context.Context, name string, offset, length int64, w io.Writer) (n int64, err error) {
	if f.out != nil {
		c := newTally()
		defer func() {
			if err == nil || c.n > 0 {
				f.out.moved(f.Absolute(name), c)
			}
		}()
		w = &talliedWriter{w, c}
	}
	return f.readFile(ctx, name, offset, length, w)
}

func (f *Files) readFile(ctx context.Context, name string, offset, length int64, w io.Writer) (n int64, err error) {
	if f.gate == nil {
		return f.Sandbox.ReadFile(ctx, name, offset, length, w)
	}
	err = f.open(ctx, name, func(x opened) error {
		if x.info.Type != sandbox.FileRegular { // the agent says it as it always does
			_, err := f.guest.ReadRange(ctx, name, 0, 0, io.Discard)
			return err
		}
		offset = min(max(offset, 0), x.info.Size)
		if length < 0 || length > x.info.Size-offset {
			length = x.info.Size - offset
		}
		if to, ok := w.(Sized); ok {
			to.Sized(length)
		}
		n, err = x.copy(Part{Offset: offset, Length: length, To: w})
		return err
	})
	return n, err
}

// Fetch is as the sandbox's, of what the gate lets out, which is described to choose.
func (f *Files) Fetch(ctx context.Context, name string, choose func(sandbox.FileInfo) (Part, error)) error {
	if f.out != nil {
		c, wanted := newTally(), choose
		defer func() {
			if c.n > 0 {
				f.out.moved(f.Absolute(name), c)
			}
		}()
		choose = func(i sandbox.FileInfo) (Part, error) {
			p, err := wanted(i)
			p.To = &talliedWriter{p.To, c}
			return p, err
		}
	}
	return f.fetch(ctx, name, choose)
}

func (f *Files) fetch(ctx context.Context, name string, choose func(sandbox.FileInfo) (Part, error)) error {
	if f.gate == nil {
		return f.Sandbox.Fetch(ctx, name, choose)
	}
	var refused error
	err := f.open(ctx, name, func(x opened) error {
		part, err := choose(x.info)
		if refused = err; err != nil || part.Length == 0 {
			return nil //nolint:nilerr // refused is handed on as it is, below
		}
		_, err = x.copy(part)
		return err
	})
	if refused != nil {
		return refused
	}
	return err
}

// opened is a file that may come out.
type opened struct {
	info sandbox.FileInfo // with the size of what does
	// copy writes a part of it, of which all is there.
	copy func(Part) (int64, error)
}

// open looks at a whole file, which it has in memory until use returns: at one of the
// sandbox's at a time, and where the request has room for it. One that is too large for that
// is refused, or comes out as it is, as the gate says. What is no regular file is described, and nothing else.
func (f *Files) open(ctx context.Context, name string, use func(opened) error) error {
	select {
	case f.Sandbox.gate.reading <- struct{}{}:
		defer func() { <-f.Sandbox.gate.reading }()
	case <-ctx.Done():
		return execution.CallerGone(ctx, context.Cause(ctx))
	}
	return f.operate(ctx, func() error {
		for try := 1; ; try++ {
			st, err := f.guest.Stat(ctx, name)
			if err != nil {
				return err
			}
			x := opened{info: described(f.Absolute(name), st)}
			a := execution.ArtifactOf(f.known(x.info.Path), st.Size)
			switch {
			case st.Type != sandbox.FileRegular:
				return use(x)
			case st.Size > f.gate.MostRead():
				if err := f.gate.Unread(a); err != nil {
					return err
				}
				x.copy = func(p Part) (int64, error) {
					n, err := f.guest.ReadOf(ctx, name, st.Inode, p.Offset, p.Length, p.To)
					if err == nil && n < p.Length {
						err = errChanged()
					}
					return n, err
				}
				return use(x)
			}
			content, err := f.readWhole(ctx, name, st)
			switch {
			case err == nil:
			case sandbox.AsError(err).Code == sandbox.CodeConflict && try < fetchTries:
				continue
			default:
				return err
			}
			if content, err = f.gate.Artifact(a, content); err != nil {
				return err
			}
			x.info.Size = int64(len(content))
			x.copy = func(p Part) (int64, error) {
				n, err := p.To.Write(content[p.Offset : p.Offset+p.Length])
				return int64(n), err
			}
			return use(x)
		}
	})
}

// readCopies is how often a file is in memory: as it was read, and as it comes out.
const readCopies = 2

// readWhole is the content of the file that was described.
func (f *Files) readWhole(ctx context.Context, name string, st wire.Stat) ([]byte, error) {
	var whole bytes.Buffer
	if st.Size == 0 {
		return nil, nil
	}
	room := readCopies * st.Size
	if err := headroom.Take(ctx, room-f.room); err != nil {
		return nil, err
	}
	f.room = max(f.room, room)
	n, err := f.guest.ReadOf(ctx, name, st.Inode, 0, st.Size, &whole)
	if err == nil && n < st.Size {
		err = errChanged()
	}
	return whole.Bytes(), err
}

// known is a path as a gate knows it: one below the home directory is relative to that, as
// those of artifacts are.
func (s *Sandbox) known(name string) string {
	if below, ok := strings.CutPrefix(name, strings.TrimSuffix(s.machine.Plan.User.Home, "/")+"/"); ok {
		return below
	}
	return name
}

// shown takes out of a listing the files whose names, or the places that they lead to, must
// not come out, and counts them.
func (s *Sandbox) shown(ctx context.Context, list *sandbox.Listing[sandbox.FileInfo]) error {
	if !s.holds() {
		return nil
	}
	g, err := s.newGate(ctx)
	if err != nil {
		return err
	}
	kept := list.Items[:0]
	for _, i := range list.Items {
		if g.Name(s.known(i.Path)) && g.Name(i.Target) {
			kept = append(kept, i)
		}
	}
	list.Unprintable += len(list.Items) - len(kept)
	list.Items = kept
	return nil
}
