package packages

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"pinfold/internal/archive"
	"pinfold/sandbox"
)

// Modes of what is kept. Owners and times are nobody's.
const (
	dirMode     = 0o755
	fileMode    = 0o644
	programMode = 0o755
)

// unpack makes a hostile archive a set's files, in a stage, and looks at them.
func unpack(ctx context.Context, r io.Reader, stage string) (files, bytes int64, sum string, err error) {
	root, err := os.OpenRoot(stage)
	if err != nil {
		return 0, 0, "", unusable(err)
	}
	defer root.Close() //nolint:errcheck // its files are closed
	if _, err := archive.Unpack(ctx, r, treeName, archive.Tar, archive.Limits{Entries: maxSetFiles, Bytes: maxSetBytes}, sink{root}); err != nil {
		return 0, 0, "", err
	}
	tree := filepath.Join(stage, treeName)
	if err := os.Chmod(tree, dirMode); err != nil {
		return 0, 0, "", unusable(err)
	}
	hash := sha256.New()
	files, bytes, err = writeTree(ctx, tree, hash)
	return files, bytes, hex.EncodeToString(hash.Sum(nil)), err
}

// sink is where package archive puts files: a directory of ours, in which nobody else is.
type sink struct{ root *os.Root }

// Stat implements archive.Sink.
func (s sink) Stat(_ context.Context, name string) (sandbox.FileInfo, error) {
	info, err := s.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return sandbox.FileInfo{}, &sandbox.Error{Code: sandbox.CodeFileNotFound, Message: "no such file", Err: err}
	case err != nil:
		return sandbox.FileInfo{}, unusable(err)
	case info.IsDir():
		return sandbox.FileInfo{Type: sandbox.FileDir}, nil
	}
	return sandbox.FileInfo{Type: sandbox.FileRegular}, nil
}

// List implements archive.Sink. What it is asked about is not there yet.
func (s sink) List(context.Context, string, int, int) (sandbox.Listing[sandbox.FileInfo], error) {
	return sandbox.Listing[sandbox.FileInfo]{}, unusable(errors.New("something is in the way"))
}

// Mkdir implements archive.Sink.
func (s sink) Mkdir(_ context.Context, name string, _ uint32) error { return s.mkdir(name) }

// mkdir makes a directory and those above it, whatever the umask is.
func (s sink) mkdir(name string) error {
	err := s.root.Mkdir(name, dirMode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if err := s.mkdir(path.Dir(name)); err != nil {
			return err
		}
		err = s.root.Mkdir(name, dirMode)
	}
	if err == nil {
		err = s.root.Chmod(name, dirMode)
	}
	if err != nil {
		return unusable(err)
	}
	return nil
}

// WriteFile implements archive.Sink.
func (s sink) WriteFile(_ context.Context, name string, mode uint32, _ int64, r io.Reader) error {
	if err := s.mkdir(path.Dir(name)); err != nil {
		return err
	}
	perm := os.FileMode(fileMode)
	if mode&0o100 != 0 {
		perm = programMode
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return unusable(err)
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(perm), f.Close()); err != nil {
		return unusable(err)
	}
	return nil
}

// Move implements archive.Sink.
func (s sink) Move(_ context.Context, from, to string) error {
	if err := s.mkdir(path.Dir(to)); err != nil {
		return err
	}
	if err := s.root.Rename(from, to); err != nil {
		return unusable(err)
	}
	return nil
}

// Remove implements archive.Sink.
func (s sink) Remove(_ context.Context, name string) error {
	if err := s.root.RemoveAll(name); err != nil {
		return unusable(err)
	}
	return nil
}

// writeTree writes a set's files as an archive that is the same wherever the set is.
func writeTree(ctx context.Context, dir string, to io.Writer) (files, bytes int64, err error) {
	out := tar.NewWriter(to)
	files, bytes, err = addTree(ctx, dir, "", time.Unix(0, 0), out)
	if err != nil {
		return 0, 0, err
	}
	if err := out.Close(); err != nil {
		return 0, 0, unusable(err)
	}
	return files, bytes, nil
}

// addTree adds a set's files to an archive, with names that begin with before.
func addTree(ctx context.Context, dir, before string, when time.Time, out *tar.Writer) (files, bytes int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, 0, unusable(err)
	}
	defer root.Close() //nolint:errcheck // only read
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		h := &tar.Header{Name: before + name, Mode: dirMode, Typeflag: tar.TypeDir, ModTime: when, Format: tar.FormatPAX}
		if d.IsDir() {
			h.Name += "/"
			return out.WriteHeader(h)
		}
		if !info.Mode().IsRegular() {
			return errors.New("a set has something that is no file")
		}
		h.Typeflag, h.Size, h.Mode = tar.TypeReg, info.Size(), int64(info.Mode().Perm())
		bytes += h.Size
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only read
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err = io.Copy(out, f)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return 0, 0, context.Cause(ctx)
	case err != nil:
		return 0, 0, unusable(err)
	}
	return files, bytes, nil
}
