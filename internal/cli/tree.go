package cli

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"pinfold/client"
	"pinfold/sandbox"
)

// uploadTree sends a directory as an archive. left counts what is not in it.
func uploadTree(ctx context.Context, box *client.Sandbox, from, to string) (left int, err error) {
	root, err := os.OpenRoot(from)
	if err != nil {
		return 0, openError(from, err)
	}
	defer root.Close() //nolint:errcheck // only read from
	r, w := io.Pipe()
	packed := make(chan error, 1)
	p := &packer{root: root, from: from, out: tar.NewWriter(w)}
	go func() {
		err := p.pack()
		if err == nil {
			err = p.out.Close()
		}
		packed <- err
		_ = w.CloseWithError(err) // never fails
	}()
	_, err = box.Upload(ctx, to, client.FormatTar, r)
	_ = r.CloseWithError(io.ErrClosedPipe) // never fails
	if pErr := <-packed; pErr != nil && !errors.Is(pErr, io.ErrClosedPipe) {
		err = pErr // what went wrong here is why the server could not go on
	}
	return p.left, err
}

// packer makes an archive of a directory of this machine.
type packer struct {
	root *os.Root
	from string
	out  *tar.Writer
	left int // what was left out
}

// pack writes everything below the directory. The rule is that of a copy out of
// a sandbox: only regular files and directories with names that can be printed,
// the rest is counted. A link to a file of the same directory becomes that file.
func (p *packer) pack() error {
	return fs.WalkDir(p.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		full := filepath.Join(p.from, name)
		if err != nil {
			return openError(full, err)
		}
		if name == "." {
			return nil
		}
		if !utf8.ValidString(name) || sandbox.SafeText(name, len(name)+1) != name {
			p.left++
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err := sandbox.CheckGuestPath("", name); err != nil {
			return err
		}
		return p.packEntry(name, full, entry)
	})
}

func (p *packer) packEntry(name, full string, entry fs.DirEntry) error {
	info, err := entry.Info()
	switch {
	case err != nil:
		return openError(full, err)
	case info.IsDir():
		return header(p.out, name+"/", tar.TypeDir, info, 0)
	case info.Mode()&fs.ModeSymlink != 0:
		// One that leads nowhere or out of the directory stays a link.
		if file, err := p.root.Stat(name); err == nil {
			info = file
		}
	}
	if !info.Mode().IsRegular() {
		p.left++
		return nil
	}
	return packFile(p.root, name, full, info, p.out)
}

func header(out *tar.Writer, name string, kind byte, info fs.FileInfo, size int64) error {
	return out.WriteHeader(&tar.Header{
		Typeflag: kind, Name: name, Size: size, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX,
	})
}

func packFile(root *os.Root, name, full string, info fs.FileInfo, out *tar.Writer) error {
	f, err := root.Open(name)
	if err != nil {
		return openError(full, err)
	}
	defer f.Close() //nolint:errcheck // only read
	if err := header(out, name, tar.TypeReg, info, info.Size()); err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(f, info.Size()))
	if err == nil && n != info.Size() {
		err = pathError(sandbox.CodeSpecInvalid, full, "became shorter while it was read")
	}
	return err
}

// maxTreeEntries bounds a directory that comes out of a sandbox.
const maxTreeEntries = 1 << 20

// downloadTree unpacks a directory of a sandbox. The archive is hostile: only
// regular files and directories with plain names below the sink are made; what
// else is in it, and what cannot be stored, is skipped and reported.
// left counts what the server did not put into it.
func downloadTree(ctx context.Context, box *client.Sandbox, from string, sink *artifactSink) (skipped []sandbox.SkippedArtifact, left int, err error) {
	r, w := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		n, err := box.Download(ctx, from, client.FormatTar, w)
		left = n // read after the channel
		failed <- err
		_ = w.CloseWithError(err) // never fails
	}()
	err = unpack(tar.NewReader(r), sink)
	if err == nil { // what follows the archive's end is padding
		_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
	}
	_ = r.CloseWithError(io.ErrClosedPipe) // never fails
	if dErr := <-failed; dErr != nil && !errors.Is(dErr, io.ErrClosedPipe) {
		err = dErr
	}
	return sink.skipped, left, err
}

func unpack(in *tar.Reader, sink *artifactSink) error {
	for n := 0; ; n++ {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, tar.ErrInsecurePath): // names are checked below
			return unsafeArchive("the archive cannot be read: "+sandbox.SafeText(err.Error(), 120), err)
		case n == maxTreeEntries:
			return unsafeArchive("the archive has too many entries", nil)
		}
		if err := unpackOne(in, h, sink); err != nil {
			return err
		}
	}
}

func unsafeArchive(message string, err error) error {
	return &sandbox.Error{Code: sandbox.CodeUnsafeArchive, Message: message, Err: err}
}

func unpackOne(in *tar.Reader, h *tar.Header, sink *artifactSink) error {
	name := strings.TrimPrefix(strings.TrimSuffix(h.Name, "/"), "./")
	if (name == "." || name == "") && h.Typeflag == tar.TypeDir {
		return nil
	}
	err := sandbox.CheckGuestPath("", name)
	switch {
	case err != nil:
	case h.Typeflag == tar.TypeDir:
		err = sink.makeParents(name)
	case h.Typeflag == tar.TypeReg:
		if err := sink.take(sandbox.Artifact{Path: name, Size: h.Size}, in); err != nil {
			return unsafeArchive("the archive breaks off", err)
		}
		return ignoreNotExist(keepExecutableIfThere(sink, name, h))
	default:
		err = pathError(sandbox.CodeNotRegularFile, name, "is neither a file nor a directory")
	}
	if err != nil {
		e := sandbox.AsError(err)
		sink.skipped = append(sink.skipped, sandbox.SkippedArtifact{Path: name, Code: e.Code, Reason: e.Message})
	}
	return nil
}

// keepExecutableIfThere marks a file that was stored as executable; one that
// was skipped is not there, or is somebody else's.
func keepExecutableIfThere(sink *artifactSink, name string, h *tar.Header) error {
	if n := len(sink.skipped); n > 0 && sink.skipped[n-1].Path == name {
		return nil
	}
	return keepExecutable(sink, path.Clean(name), uint32(h.Mode&0o777))
}

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
