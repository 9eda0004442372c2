package guest

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Paths are absolute or relative to the sandbox's home. No operation follows a
// symbolic link; only Stat does, before the last component.

// WriteFile makes or replaces a regular file with what r gives, makes missing
// directories above it, and gives it the permission bits of mode. size is what
// r must give, or -1. After an error the file may be there in part.
//
// r is read by the caller's goroutine: a reader that blocks is not interrupted
// when ctx ends.
func (g *Guest) WriteFile(ctx context.Context, path string, mode uint32, size int64, r io.Reader) error {
	c, err := g.openFile(ctx, wire.OpWrite, wire.FileRequest{Path: path, Mode: mode, Size: size}, shape{upload: true, prompt: true})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, c.abandon)()
	total, readErr := c.pump(r)
	if readErr != nil && !errors.Is(readErr, errSated) {
		c.giveUp(ctx) // what the caller does next must find the agent done with it
		return sandbox.Errorf(sandbox.CodeInternal, "reading what to write to %s: %w", sandbox.SafeText(path, 200), readErr)
	}
	o, err := c.wait(ctx)
	if err == nil && (readErr != nil || o.Size != total) {
		return c.violated("a file written with another size")
	}
	return named(path, err)
}

// ReadFile copies a regular file of at most limit bytes to w and says how much
// that was. A larger one is an error of code too_large, anything but a regular
// file one of code not_regular_file.
func (g *Guest) ReadFile(ctx context.Context, path string, limit int64, w io.Writer) (int64, error) {
	return g.download(ctx, wire.FileRequest{Path: path, Size: limit}, limit, w)
}

// ReadRange copies a part of a regular file to w: from offset on, at most length
// bytes, or all there is when length is -1. A file that ends earlier gives
// less, which is no error. What a growing file may give is bounded by length
// or by w, whose error ends the reading.
func (g *Guest) ReadRange(ctx context.Context, path string, offset, length int64, w io.Writer) (int64, error) {
	return g.ReadOf(ctx, path, 0, offset, length, w)
}

// ReadOf is ReadRange of the file that has that inode, 0 for any (see Stat). That
// another one has its name by now, or that it does not have as much, is an error of
// code conflict, and then nothing was written to w.
func (g *Guest) ReadOf(ctx context.Context, path string, inode uint64, offset, length int64, w io.Writer) (int64, error) {
	if offset < 0 || length < -1 {
		return 0, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Message: "a range that begins or ends before the file"}
	}
	most := length
	if length < 0 {
		most = math.MaxInt64
	}
	return g.download(ctx, wire.FileRequest{Path: path, Size: length, Part: true, Offset: offset, Inode: inode}, most, w)
}

// download reads a file of which at most limit bytes may come.
func (g *Guest) download(ctx context.Context, req wire.FileRequest, limit int64, w io.Writer) (int64, error) {
	c, err := g.openFile(ctx, wire.OpRead, req, shape{downloads: 1, prompt: true})
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, c.abandon)()
	var total int64
	inbox := c.download[wire.Stdout]
	for b := c.next(inbox); b != nil; b = c.next(inbox) {
		if int64(len(b)) > limit-total {
			return total, c.violated("more of a file than was asked for")
		}
		n, err := w.Write(b)
		total += int64(n)
		if err != nil {
			c.abandon()
			return total, sandbox.Errorf(sandbox.CodeInternal, "writing what was read: %w", err)
		}
		c.received(wire.Stdout)
	}
	o, err := c.wait(ctx)
	if err == nil && o.Size != total {
		return total, c.violated("a file read with another size")
	}
	return total, named(req.Path, err)
}

// next waits for what comes of a download.
func (c *channel) next(inbox *wire.Inbox) []byte {
	c.answer.wait()
	defer c.answer.rest()
	return inbox.Next()
}

// Put writes small files, of at most wire.MaxPut bytes together, in one
// operation, each as WriteFile would. failed is the index of the file that the
// error is about, or -1.
func (g *Guest) Put(ctx context.Context, files []wire.PutFile) (failed int, err error) {
	if len(files) == 0 {
		return -1, nil
	}
	total := 0
	for i, f := range files {
		if total += len(f.Content); total > wire.MaxPut {
			return i, sandbox.Errorf(sandbox.CodeTooLarge, "more than %d bytes in one operation", wire.MaxPut)
		}
		if err := sendable(f.Path); err != nil {
			return i, err
		}
	}
	c, o, err := g.do(ctx, wire.Request{Op: wire.OpPut, Put: &wire.PutRequest{Files: files}}, plain{})
	n := int64(len(files))
	switch {
	case c == nil:
		return -1, err
	case err == nil && o.Size != n, err != nil && o.Size >= n:
		return -1, c.violated("another number of files than were sent")
	case err != nil && o.Error != nil:
		return int(o.Size), named(files[o.Size].Path, err)
	}
	return -1, err
}

// Stat describes a path; a symbolic link itself, not what it points to. A link's
// target is the guest's word and may hold anything.
func (g *Guest) Stat(ctx context.Context, path string) (wire.Stat, error) {
	o, err := g.file(ctx, wire.OpStat, wire.FileRequest{Path: path})
	if err != nil {
		return wire.Stat{}, err
	}
	if o.Stat == nil {
		g.end(gone(broken("a description that says nothing")))
		return wire.Stat{}, g.Err()
	}
	return *o.Stat, nil
}

// Mkdir makes a directory and the missing ones above it. One that exists is
// left as it is.
func (g *Guest) Mkdir(ctx context.Context, path string, mode uint32) error {
	_, err := g.file(ctx, wire.OpMkdir, wire.FileRequest{Path: path, Mode: mode})
	return err
}

// Remove deletes a path and everything below it.
func (g *Guest) Remove(ctx context.Context, path string) error {
	_, err := g.file(ctx, wire.OpRemove, wire.FileRequest{Path: path})
	return err
}

// KillAll kills every process in the sandbox but the agent and returns when
// they are gone.
func (g *Guest) KillAll(ctx context.Context) error {
	_, _, err := g.do(ctx, wire.Request{Op: wire.OpKillAll}, plain{})
	return err
}

// Listing is what Glob found.
type Listing struct {
	// Files are in path order, without doubles. Paths are relative to the
	// directory and have passed sandbox.CheckGuestPath. A type other than
	// "file" stands only for a pattern without wildcards.
	Files []wire.FileEntry
	// More says that there were more than asked for, or too many entries to
	// look at.
	More bool
	// Unprintable counts matches left out because of their names.
	Unprintable int
}

// Glob lists at most limit regular files below dir that match one of the
// patterns, in which "**" stands for any number of directories.
func (g *Guest) Glob(ctx context.Context, dir string, patterns []string, limit int) (Listing, error) {
	limit = min(max(limit, 0), wire.MaxFiles)
	if err := sendable(append([]string{dir}, patterns...)...); err != nil {
		return Listing{}, err
	}
	l := &lister{limit: limit}
	req := wire.Request{Op: wire.OpGlob, Glob: &wire.GlobRequest{Dir: dir, Patterns: patterns, Max: limit}}
	c, o, err := g.do(ctx, req, l)
	if err != nil {
		return Listing{}, err
	}
	if !sortByPath(l.files, func(f wire.FileEntry) string { return f.Path }) {
		return Listing{}, c.violated("a file listed twice")
	}
	return Listing{Files: l.files, More: o.More, Unprintable: o.Unprintable}, nil
}

// lister collects a glob's matches.
type lister struct {
	plain
	limit int
	bytes int
	files []wire.FileEntry
}

func (l *lister) event(e wire.Event) error {
	if e.Kind != wire.EventFiles || len(e.Files) == 0 {
		return broken("an event where none belongs")
	}
	if len(l.files)+len(e.Files) > l.limit {
		return broken("more files than were asked for")
	}
	for _, f := range e.Files {
		if err := checkEntry(f); err != nil {
			return err
		}
		if l.bytes += len(f.Path); l.bytes > wire.MaxListBytes {
			return broken("a listing with too many bytes")
		}
	}
	l.files = append(l.files, e.Files...)
	return nil
}

// file does an operation on one path that has no streams.
func (g *Guest) file(ctx context.Context, op wire.Op, req wire.FileRequest) (wire.Outcome, error) {
	c, err := g.openFile(ctx, op, req, shape{prompt: true})
	if err != nil {
		return wire.Outcome{}, err
	}
	o, err := c.wait(ctx)
	return o, named(req.Path, err)
}

func (g *Guest) openFile(ctx context.Context, op wire.Op, req wire.FileRequest, s shape) (*channel, error) {
	if err := sendable(req.Path); err != nil {
		return nil, err
	}
	return g.open(ctx, wire.Request{Op: op, File: &req}, plain{}, s)
}

// sendable refuses paths that would not arrive as they are.
func sendable(paths ...string) error {
	for _, p := range paths {
		if p == "" || len(p) > wire.MaxPath || !utf8.ValidString(p) || strings.IndexByte(p, 0) >= 0 {
			return &sandbox.Error{
				Code:    sandbox.CodePathInvalid,
				Message: "\"" + sandbox.SafeText(p, 80) + "\" is empty, too long, not valid UTF-8 or contains a NUL byte",
			}
		}
	}
	return nil
}

// named puts the path in front of an agent's error about it.
func named(path string, err error) error {
	e, ok := err.(*sandbox.Error) //nolint:errorlint // ours, not wrapped yet
	if !ok || e.Code == sandbox.CodeProtocol {
		return err
	}
	c := *e
	c.Message = sandbox.SafeText(path, 200) + ": " + c.Message
	return &c
}
