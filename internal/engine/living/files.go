package living

import (
	"context"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"pinfold/internal/engine/execution"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Paths are absolute or relative to the home directory. No operation follows a
// symbolic link at the end of its path.

// operate runs one operation on the guest as a use of the sandbox.
func (s *Sandbox) operate(ctx context.Context, f func() error) error {
	done, err := s.use()
	if err != nil {
		return err
	}
	defer done()
	if err := f(); err != nil {
		return s.explain(ctx, err)
	}
	return nil
}

// Stat describes a file; a symbolic link itself, not what it points to.
func (s *Sandbox) Stat(ctx context.Context, name string) (info sandbox.FileInfo, err error) {
	err = s.operate(ctx, func() error {
		st, err := s.guest.Stat(ctx, name)
		info = described(s.Absolute(name), st)
		return err
	})
	if one := (sandbox.Listing[sandbox.FileInfo]{Items: []sandbox.FileInfo{info}}); err == nil && info.Target != "" {
		if err = s.shown(ctx, &one); err == nil && len(one.Items) == 0 {
			err = &sandbox.Error{Code: sandbox.CodeWithheld, Message: "the output gate has withheld the name of the file, or the place that it leads to"}
		}
	}
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	return info, nil
}

func described(name string, st wire.Stat) sandbox.FileInfo {
	return sandbox.FileInfo{
		Path: name, Type: st.Type, Size: st.Size, Mode: st.Mode,
		MTime: time.Unix(0, st.MtimeNS).UTC(), UID: st.UID, GID: st.GID, Target: st.Target,
	}
}

// List lists a directory, with depth 1 its own entries, in the order of their
// paths.
func (s *Sandbox) List(ctx context.Context, dir string, depth, limit int) (list sandbox.Listing[sandbox.FileInfo], err error) {
	err = s.operate(ctx, func() error {
		found, err := s.guest.List(ctx, dir, depth, limit)
		for _, e := range found.Items {
			list.Items = append(list.Items, fileInfo(s.Absolute(dir), e))
		}
		list.More, list.Unprintable = found.More, found.Unprintable
		return err
	})
	if err == nil {
		err = s.shown(ctx, &list)
	}
	return list, err
}

func fileInfo(dir string, e wire.Entry) sandbox.FileInfo {
	return sandbox.FileInfo{
		Path: path.Join(dir, e.Path), Type: e.Type, Size: e.Size, Mode: e.Mode,
		MTime: time.Unix(0, e.MtimeNS).UTC(), UID: e.UID, GID: e.GID, Target: e.Target,
	}
}

// Absolute is a path of the sandbox's, which may be relative to the home directory, from
// the root on.
func (s *Sandbox) Absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(s.machine.Plan.User.Home, name)
}

// ReadFile copies length bytes of a regular file to w, from an offset on; -1 is
// all that follows. It says how many there were. Where the sandbox has a gate, they are
// those of what that lets out.
func (s *Sandbox) ReadFile(ctx context.Context, name string, offset, length int64, w io.Writer) (n int64, err error) {
	if s.gate != nil {
		f, err := s.Files(ctx)
		if err != nil {
			return 0, err
		}
		return f.ReadFile(ctx, name, offset, length, w)
	}
	err = s.operate(ctx, func() error {
		n, err = s.guest.ReadRange(ctx, name, offset, length, w)
		return err
	})
	return n, err
}

// Part is what is wanted of a file, and where it goes. A length of 0 is nothing.
type Part struct {
	Offset, Length int64
	To             io.Writer
}

// fetchTries is how often Fetch begins anew.
const fetchTries = 10

// Fetch describes a file and then reads what choose wants of it: of the very file
// that was described. A program may rename another one to its name meanwhile; then
// nothing has been written, and it begins anew. An error of code conflict says that
// this happens all the time, or that the file became shorter while it was read. Where the
// sandbox has a gate, what that lets out is described and read.
func (s *Sandbox) Fetch(ctx context.Context, name string, choose func(sandbox.FileInfo) (Part, error)) error {
	if s.gate != nil {
		f, err := s.Files(ctx)
		if err != nil {
			return err
		}
		return f.Fetch(ctx, name, choose)
	}
	var refused error
	err := s.operate(ctx, func() error {
		for try := 1; ; try++ {
			st, err := s.guest.Stat(ctx, name)
			if err != nil {
				return err
			}
			part, err := choose(described(s.Absolute(name), st))
			if refused = err; err != nil || part.Length == 0 {
				return nil //nolint:nilerr // refused is handed on as it is, below
			}
			n, err := s.guest.ReadOf(ctx, name, st.Inode, part.Offset, part.Length, part.To)
			switch {
			case err == nil && n < part.Length:
				return errChanged()
			case err == nil || n > 0 || sandbox.AsError(err).Code != sandbox.CodeConflict:
				return err
			case try == fetchTries:
				return errChanged()
			}
		}
	})
	if refused != nil { // the chooser's own error, as it is: the sandbox has no part in it
		return refused
	}
	return err
}

func errChanged() *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeConflict, Message: "the file changed while it was read", Hint: "try again"}
}

// WriteFile makes or replaces a regular file with what r gives, and the missing
// directories above it. size is what r must give, or -1. After an error what
// was written of it is removed.
func (s *Sandbox) WriteFile(ctx context.Context, name string, mode uint32, size int64, r io.Reader) error {
	return s.operate(ctx, func() error {
		err := s.machine.WriteFile(ctx, name, mode, size, r)
		if err != nil {
			s.dropPart(ctx, name, err)
		}
		return err
	})
}

// dropPart removes what a failed write has left of a file, so that it does not
// fill the disk that was too small for it.
func (s *Sandbox) dropPart(ctx context.Context, name string, why error) {
	if code := sandbox.AsError(why).Code; code != sandbox.CodeTooLarge && code != sandbox.CodeInternal && code != sandbox.CodeSpecInvalid {
		return // it was never opened
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), execution.KillTimeout)
	defer cancel()
	if st, err := s.guest.Stat(ctx, name); err == nil && st.Type == sandbox.FileRegular {
		_ = s.guest.Remove(ctx, name) // the caller learns of the failure itself
	}
}

// Mkdir makes a directory and the missing ones above it.
func (s *Sandbox) Mkdir(ctx context.Context, name string, mode uint32) error {
	return s.operate(ctx, func() error { return s.machine.RoomError(s.guest.Mkdir(ctx, name, mode)) })
}

// Move renames a file or a directory. A regular file in its place is replaced.
func (s *Sandbox) Move(ctx context.Context, from, to string) error {
	return s.operate(ctx, func() error { return s.guest.Move(ctx, from, to) })
}

// Remove deletes a file, or a directory with everything below it. The places in which
// a program can write, and what holds them, stay.
func (s *Sandbox) Remove(ctx context.Context, name string) error {
	if at := s.Absolute(name); holdsPlace(at, s.writable(), s.request.Mounts) {
		return &sandbox.Error{
			Code: sandbox.CodePathInvalid, Field: "path", Message: sandbox.SafeText(at, 80) + " itself cannot be removed",
			Hint: "remove what is in it, by name",
		}
	}
	return s.operate(ctx, func() error { return s.guest.Remove(ctx, name) })
}

// writable lists the places in which a program of the sandbox's can write, but for mounts.
func (s *Sandbox) writable() (places []string) {
	if s.machine == nil {
		return nil
	}
	for _, w := range s.machine.Plan.Writable() {
		places = append(places, w.Path)
	}
	return places
}

// holdsPlace says whether a path is a writable place or a mount, or above one.
func holdsPlace(at string, writable []string, mounts []sandbox.Mount) bool {
	below := strings.TrimSuffix(at, "/") + "/"
	return slices.ContainsFunc(writable, func(w string) bool { return w == at || strings.HasPrefix(w, below) }) ||
		slices.ContainsFunc(mounts, func(m sandbox.Mount) bool { return m.Guest == at || strings.HasPrefix(m.Guest, below) })
}

// Watch calls f for each change in a directory until ctx or the sandbox ends, or
// f returns an error. The first event has the kind "ready". A reader that is too slow gets an event of kind
// "overflow" in place of those that it missed, and so does one whose file's name must not
// come out.
func (s *Sandbox) Watch(ctx context.Context, dir string, recursive bool, f func(sandbox.FileEvent) error) error {
	var names execution.Gate
	if s.holds() {
		var err error
		if names, err = s.newGate(ctx); err != nil {
			return sandbox.AsError(err)
		}
	}
	return s.operate(ctx, func() error {
		return s.guest.Watch(ctx, dir, recursive, func(e wire.WatchEvent) error {
			event := sandbox.FileEvent{Kind: e.Kind, Dir: e.Dir}
			if e.Path != "" {
				event.Path = path.Join(s.Absolute(dir), e.Path)
			}
			if names != nil && !names.Name(s.known(event.Path)) {
				event = sandbox.FileEvent{Kind: watchOverflow}
			}
			return f(event)
		})
	})
}

// watchOverflow is the kind of an event in the place of others.
const watchOverflow = "overflow"

// Changes lists what has been made in the sandbox since its beginning. The
// template's writable places are empty then, so everything in them was added.
func (s *Sandbox) Changes(ctx context.Context, limit int) (changes sandbox.Listing[sandbox.Change], err error) {
	for _, w := range s.writable() {
		found, err := s.List(ctx, w, maxDepth, limit-len(changes.Items))
		if err != nil && sandbox.AsError(err).Code == sandbox.CodeFileNotFound {
			continue // the program has removed the place itself
		}
		if err != nil {
			return sandbox.Listing[sandbox.Change]{}, err
		}
		for _, info := range found.Items {
			changes.Items = append(changes.Items, sandbox.Change{Kind: "added", File: info})
		}
		changes.Unprintable += found.Unprintable
		if changes.More = found.More; changes.More {
			break
		}
	}
	return changes, nil
}

// Holds is how many bytes the sandbox's files can have together, 0 where nothing
// bounds them.
func (s *Sandbox) Holds() int64 {
	if s.machine == nil {
		return 0
	}
	return s.machine.Holds(0)
}

// maxDepth is deeper than any path can be.
const maxDepth = 2048

// Dial connects to a TCP server in the sandbox, at 127.0.0.1 or else [::1]. The
// sandbox is in use until the connection is closed.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	if err := s.Unchecked("a port"); err != nil {
		return nil, err
	}
	done, err := s.use()
	if err != nil {
		return nil, err
	}
	conn, err := s.guest.Dial(ctx, port)
	if err != nil {
		done()
		return nil, s.explain(ctx, err)
	}
	return &countedConn{Conn: conn, done: done}, nil
}

// countedConn ends a use of the sandbox when it is closed.
type countedConn struct {
	net.Conn
	done func()
}

// Close closes the connection.
func (c *countedConn) Close() error {
	c.done()
	return c.Conn.Close()
}

// CloseWrite ends what is written, while reading goes on.
func (c *countedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Conn.Close()
}
