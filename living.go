package pinfold

import (
	"cmp"
	"context"
	"io"
	"net"

	"pinfold/internal/archive"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Paths in a sandbox are absolute, or relative to /home/user.

// Sandbox is a living sandbox of this process. It ends when it is destroyed,
// when its time is over, and with the process.
type Sandbox struct {
	local *Local
	box   *living.Sandbox
}

// Create makes a living sandbox. When the capacity is used up it waits in the
// queue. The caller destroys the sandbox; its time to live does otherwise.
func (l *Local) Create(ctx context.Context, c sandbox.Create) (*Sandbox, error) {
	box, err := l.engine.Create(ctx, records.LocalTenant, c)
	if err != nil {
		return nil, err
	}
	return &Sandbox{l, box}, nil
}

// Sandbox returns the living sandbox of that id. That there is none is an error
// of code not_found, or gone when it has ended.
func (l *Local) Sandbox(id string) (*Sandbox, error) {
	box, err := l.engine.Sandbox(records.LocalTenant, id)
	if err != nil {
		return nil, err
	}
	return &Sandbox{l, box}, nil
}

// ID returns the sandbox's id.
func (s *Sandbox) ID() string { return s.box.ID() }

// Info describes the sandbox, also after its end.
func (s *Sandbox) Info(context.Context) (sandbox.Info, error) { return s.box.Info(), nil }

// Ended is closed when the sandbox has ended, for whatever reason.
func (s *Sandbox) Ended() <-chan struct{} { return s.box.Ended() }

// Extend lets the sandbox live ttlMS milliseconds from now.
func (s *Sandbox) Extend(_ context.Context, ttlMS int64) (sandbox.Info, error) {
	return s.box.Extend(ttlMS)
}

// ChangeNetwork changes what the sandbox can reach, at once: what is not declared any more is
// cut when it returns.
func (s *Sandbox) ChangeNetwork(ctx context.Context, c sandbox.NetworkChange) (sandbox.Info, error) {
	return s.box.ChangeNetwork(ctx, c)
}

// WatchNetwork calls f with what has gone on with the declared endpoints since the sandbox was
// made, at once and after that whenever it has changed, until ctx or the sandbox ends, or f
// returns an error, which WatchNetwork returns.
func (s *Sandbox) WatchNetwork(ctx context.Context, f func(sandbox.NetworkUse) error) error {
	return s.box.WatchNetwork(ctx, f)
}

// Pause has nothing in the sandbox run any more until Resume; it keeps its memory and its
// files. What else is asked of it is an error until then. That it is paused is no error.
func (s *Sandbox) Pause(ctx context.Context) (sandbox.Info, error) { return s.box.Pause(ctx) }

// Resume has what is in a paused sandbox go on. That it runs is no error.
func (s *Sandbox) Resume(ctx context.Context) (sandbox.Info, error) { return s.box.Resume(ctx) }

// Destroy ends the sandbox and returns when nothing of it is left on the host.
// That it has ended already is no error.
func (s *Sandbox) Destroy(ctx context.Context) (sandbox.Info, error) { return s.box.Destroy(ctx) }

// Stat describes a file. Symbolic links are not followed.
func (s *Sandbox) Stat(ctx context.Context, path string) (sandbox.FileInfo, error) {
	return s.box.Stat(ctx, path)
}

// maxListed is how much a list without a limit gives.
const maxListed = 1000

// List returns what is in a directory, depth levels down: 1 means the
// directory's own entries. At most limit entries come, 0 means 1000.
func (s *Sandbox) List(ctx context.Context, path string, depth, limit int) (sandbox.Listing[sandbox.FileInfo], error) {
	return s.box.List(ctx, path, max(depth, 1), cmp.Or(limit, maxListed))
}

// ReadFile copies a file's bytes from offset on to w and returns how many came.
// A length of -1 means to the file's end.
func (s *Sandbox) ReadFile(ctx context.Context, path string, offset, length int64, w io.Writer) (int64, error) {
	return s.box.ReadFile(ctx, path, offset, length, w)
}

// WriteFile makes or replaces a file with the content of r. mode is its
// permission bits, 0 for 0644. size is the content's length in bytes, or -1
// when it is not known. Missing directories on the way are made.
func (s *Sandbox) WriteFile(ctx context.Context, path string, mode uint32, size int64, r io.Reader) error {
	return s.box.WriteFile(ctx, path, cmp.Or(mode, 0o644), size, r)
}

// Mkdir makes a directory and those above it that are missing. mode is its
// permission bits, 0 for 0755.
func (s *Sandbox) Mkdir(ctx context.Context, path string, mode uint32) error {
	return s.box.Mkdir(ctx, path, cmp.Or(mode, 0o755))
}

// Move renames a file or directory, replacing a file that has the name.
func (s *Sandbox) Move(ctx context.Context, from, to string) error { return s.box.Move(ctx, from, to) }

// Remove removes a file, or a directory with everything in it.
func (s *Sandbox) Remove(ctx context.Context, path string) error { return s.box.Remove(ctx, path) }

// Watch calls f for each change in a directory, after one event of kind
// "ready", until ctx or the sandbox ends, or f returns an error, which Watch
// returns.
func (s *Sandbox) Watch(ctx context.Context, path string, recursive bool, f func(sandbox.FileEvent) error) error {
	return s.box.Watch(ctx, path, recursive, f)
}

// Changes lists the files that differ from the sandbox's beginning, at most
// limit; 0 means 1000.
func (s *Sandbox) Changes(ctx context.Context, limit int) (sandbox.Listing[sandbox.Change], error) {
	return s.box.Changes(ctx, cmp.Or(limit, maxListed))
}

// Dial connects to a TCP server that listens on the port inside. What answers
// is a guest. That nobody listens is an error of code port_closed.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	return s.box.Dial(ctx, port)
}

// Download writes what is in a directory as an archive ("tar", "tar.gz" or
// "zip") to w, with names relative to the directory. Only regular files and
// directories go in; skipped counts the rest. Files that have more bytes together
// than the sandbox's disk, as sparse ones may, are an error of code too_large.
func (s *Sandbox) Download(ctx context.Context, path, format string, w io.Writer) (skipped int, err error) {
	f, err := archive.ParseFormat(format)
	if err != nil {
		return 0, err
	}
	files, err := s.box.Files(ctx)
	if err != nil {
		return 0, err
	}
	done, err := archive.Pack(ctx, files, path, f, archive.Limits{Bytes: s.box.Holds()}, w)
	return done.Skipped, err
}

// Upload unpacks an archive into a directory, which is made when it is missing.
// An archive with anything but regular files and directories under plain names
// is an error of code unsafe_archive, and changes nothing.
func (s *Sandbox) Upload(ctx context.Context, path, format string, r io.Reader) (Archived, error) {
	f, err := archive.ParseFormat(format)
	if err != nil {
		return Archived{}, err
	}
	done, err := archive.Unpack(ctx, r, path, f, archive.Limits{}, s.box)
	return Archived{Files: done.Files, Directories: done.Directories, Bytes: done.Bytes, Skipped: done.Skipped}, err
}
