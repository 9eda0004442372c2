package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"pinfold/sandbox"
)

// Paths in a sandbox are absolute, or relative to /home/user.

// ReadFile copies a file's bytes from offset on to w and returns how many came.
// A length of -1 means to the file's end. After a broken connection it goes on
// where it was; that the file has changed meanwhile is an error of code
// conflict.
func (s *Sandbox) ReadFile(ctx context.Context, path string, offset, length int64, w io.Writer) (int64, error) {
	if offset < 0 || length < -1 {
		return 0, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "offset", Message: "must not be negative"}
	}
	if length == 0 {
		return 0, nil
	}
	read := &fileRead{sandbox: s, path: path, at: offset, end: -1, w: w, buf: make([]byte, transferBytes)}
	if length > 0 {
		read.end = offset + length
	}
	err := reconnecting(ctx, func() (bool, error) {
		before := read.at
		err := read.once(ctx)
		return read.at > before, err
	})
	return read.at - offset, err
}

// fileRead is a download on its way.
type fileRead struct {
	sandbox *Sandbox
	path    string
	at, end int64 // end: -1 for the file's
	etag    string
	w       io.Writer
	buf     []byte
}

func (f *fileRead) once(ctx context.Context) error {
	k := f.sandbox.call(http.MethodGet, "files")
	k.query, k.accept, k.header = values("path", f.path), typeBytes+", "+typeJSON, http.Header{}
	if f.at > 0 || f.end >= 0 {
		last := ""
		if f.end >= 0 {
			last = strconv.FormatInt(f.end-1, 10)
		}
		k.header.Set("Range", fmt.Sprintf("bytes=%d-%s", f.at, last))
	}
	k.also = http.StatusRequestedRangeNotSatisfiable
	resp, err := f.sandbox.client.send(ctx, k)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read from
	if resp.StatusCode == k.also {
		return nil // nothing is there: reading at the end is no error
	}
	if err := f.check(resp, k.header.Get("Range") != ""); err != nil {
		return err
	}
	return f.copy(ctx, resp)
}

func (f *fileRead) check(resp *http.Response, ranged bool) error {
	if ranged && resp.StatusCode != http.StatusPartialContent {
		return notOurs(resp, "is the whole file instead of a part", nil)
	}
	etag := resp.Header.Get("ETag")
	if f.etag != "" && etag != f.etag {
		return &sandbox.Error{Code: sandbox.CodeConflict, Field: "path", Message: "the file changed while it was read"}
	}
	f.etag = etag
	return nil
}

func (f *fileRead) copy(ctx context.Context, resp *http.Response) error {
	for {
		n, err := resp.Body.Read(f.buf)
		if n > 0 {
			if _, wErr := f.w.Write(f.buf[:n]); wErr != nil {
				return passOn("what came", wErr)
			}
			f.at += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return disconnected(f.sandbox.client.base, cause(ctx, err))
		}
	}
}

func passOn(what string, err error) error {
	return &sandbox.Error{Code: sandbox.CodeInternal, Message: what + " cannot be passed on: " + err.Error(), Err: err}
}

// WriteFile makes or replaces a file with the content of r. mode is its
// permission bits, 0 for 0644. size is the content's length in bytes, or -1
// when it is not known. Missing directories on the way are made.
func (s *Sandbox) WriteFile(ctx context.Context, path string, mode uint32, size int64, r io.Reader) error {
	k := s.call(http.MethodPut, "files")
	k.query, k.stream, k.size = values("path", path, "mode", octal(mode&0o777)), r, size
	return s.client.ask(ctx, k, nil)
}

// octal is empty for the default.
func octal(mode uint32) string {
	if mode == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(mode), 8)
}

// Stat describes a file. Symbolic links are not followed.
func (s *Sandbox) Stat(ctx context.Context, path string) (sandbox.FileInfo, error) {
	k := s.call(http.MethodGet, "files", "stat")
	k.query = values("path", path)
	return answered[sandbox.FileInfo](ctx, s.client, k)
}

// List returns what is in a directory, depth levels down: 1 means the
// directory's own entries. At most limit entries come; 0 means as many as the
// server gives.
func (s *Sandbox) List(ctx context.Context, path string, depth, limit int) (sandbox.Listing[sandbox.FileInfo], error) {
	k := s.call(http.MethodGet, "files", "list")
	k.query = values("path", path, "depth", number(depth), "limit", number(limit))
	return answered[sandbox.Listing[sandbox.FileInfo]](ctx, s.client, k)
}

// number is empty for 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Mkdir makes a directory and those above it that are missing. mode is its
// permission bits, 0 for 0755.
func (s *Sandbox) Mkdir(ctx context.Context, path string, mode uint32) error {
	k := s.call(http.MethodPost, "files", "mkdir")
	k.json = struct {
		Path string `json:"path"`
		Mode uint32 `json:"mode,omitempty"`
	}{path, mode}
	return s.client.ask(ctx, k, nil)
}

// Move renames a file or directory, replacing a file that has the name.
func (s *Sandbox) Move(ctx context.Context, from, to string) error {
	k := s.call(http.MethodPost, "files", "move")
	k.json = struct {
		From string `json:"from"`
		To   string `json:"to"`
	}{from, to}
	return s.client.ask(ctx, k, nil)
}

// Remove removes a file, or a directory with everything in it.
func (s *Sandbox) Remove(ctx context.Context, path string) error {
	k := s.call(http.MethodDelete, "files")
	k.query = values("path", path)
	return s.client.ask(ctx, k, nil)
}

// KindReady is the kind of the first event of a watch: what happens from now on
// is seen.
const KindReady = "ready"

// Watch calls f for each change in a directory, after one event of kind
// KindReady, until ctx or the sandbox ends, or f returns an error, which Watch
// returns. A connection that breaks is an error: what happened meanwhile is not
// known.
func (s *Sandbox) Watch(ctx context.Context, path string, recursive bool, f func(sandbox.FileEvent) error) error {
	k := s.call(http.MethodGet, "files", "watch")
	k.query = values("path", path, "recursive", strconv.FormatBool(recursive))
	return s.client.stream(ctx, k, watcher(f))
}

// watcher takes the events of a watch.
type watcher func(sandbox.FileEvent) error

func (w watcher) take(e event) (last bool, err error) {
	switch e.name {
	case "end":
		return true, nil
	case KindReady:
		return false, w(sandbox.FileEvent{Kind: KindReady})
	}
	var change sandbox.FileEvent
	if err := e.decode(&change); err != nil {
		return false, err
	}
	return false, w(change)
}

// Changes lists the files that differ from the sandbox's beginning, at most
// limit; 0 means as many as the server gives.
func (s *Sandbox) Changes(ctx context.Context, limit int) (sandbox.Listing[sandbox.Change], error) {
	k := s.call(http.MethodGet, "changes")
	k.query = values("limit", number(limit))
	return answered[sandbox.Listing[sandbox.Change]](ctx, s.client, k)
}
