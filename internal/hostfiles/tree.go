package hostfiles

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"pinfold/sandbox"
)

// Pack writes the directory of that name as a tar archive. The rule is that of a copy
// out of a sandbox: only regular files and directories with names that can be printed;
// left counts the rest. A link to a file of the same directory becomes that file.
func Pack(from string, w io.Writer) (left int, err error) {
	root, err := os.OpenRoot(from)
	if err != nil {
		return 0, OpenError(from, err)
	}
	defer root.Close() //nolint:errcheck // only read from
	p := &packer{root: root, from: from, out: tar.NewWriter(w)}
	if err := p.pack(); err != nil {
		return p.left, err
	}
	return p.left, p.out.Close()
}

// packer makes an archive of a directory of this machine.
type packer struct {
	root *os.Root
	from string
	out  *tar.Writer
	left int // what was left out
}

// pack writes everything below the directory.
func (p *packer) pack() error {
	return fs.WalkDir(p.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		full := filepath.Join(p.from, name)
		if err != nil {
			return OpenError(full, err)
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
		return OpenError(full, err)
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
		return OpenError(full, err)
	}
	defer f.Close() //nolint:errcheck // only read
	if err := header(out, name, tar.TypeReg, info, info.Size()); err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(f, info.Size()))
	if err == nil && n != info.Size() {
		err = PathError(sandbox.CodeSpecInvalid, full, "became shorter while it was read")
	}
	return err
}

// maxTreeEntries bounds a directory that comes out of a sandbox.
const maxTreeEntries = 1 << 20

// Unpack makes what is in a tar archive below the sink's directory. The archive is
// hostile: only regular files and directories with plain names are made; what else is
// in it, and what cannot be stored, is among the sink's skipped.
func Unpack(r io.Reader, sink *Sink) error {
	if err := unpack(tar.NewReader(r), sink); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, io.LimitReader(r, 1<<20)) // what follows the archive's end is padding
	return err
}

func unpack(in *tar.Reader, sink *Sink) error {
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

func unpackOne(in *tar.Reader, h *tar.Header, sink *Sink) error {
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
		if err := sink.Take(sandbox.Artifact{Path: name, Size: h.Size}, in); err != nil {
			return unsafeArchive("the archive breaks off", err)
		}
		return ignoreNotExist(keepExecutableIfThere(sink, name, h))
	default:
		err = PathError(sandbox.CodeNotRegularFile, name, "is neither a file nor a directory")
	}
	if err != nil {
		e := sandbox.AsError(err)
		sink.skipped = append(sink.skipped, sandbox.SkippedArtifact{Path: name, Code: e.Code, Reason: e.Message})
	}
	return nil
}

// keepExecutableIfThere marks a file that was stored as executable; one that
// was skipped is not there, or is somebody else's.
func keepExecutableIfThere(sink *Sink, name string, h *tar.Header) error {
	if n := len(sink.skipped); n > 0 && sink.skipped[n-1].Path == name {
		return nil
	}
	return sink.KeepExecutable(path.Clean(name), uint32(h.Mode&0o777))
}
