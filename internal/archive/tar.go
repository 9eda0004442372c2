package archive

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"strings"
)

func (u *unpacking) readGzip(in *input) error {
	z, err := gzip.NewReader(in)
	if err != nil {
		return damaged(TarGzip, err)
	}
	return u.readTar(z, in, TarGzip)
}

// readTar takes up the entries of a tar stream.
func (u *unpacking) readTar(r io.Reader, in *input, f Format) error {
	m := &meter{r: r, in: in, lim: u.lim}
	t := tar.NewReader(m)
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			if n == 0 && in.n == 0 {
				return damaged(f, io.ErrUnexpectedEOF)
			}
			return nil
		}
		if n > 2*u.lim.Entries && err == nil { // the root, named again and again
			err = tooMuch("has too many entries")
		}
		if err == nil {
			err = u.tarEntry(h, t)
		}
		if m.over != nil {
			return m.over
		}
		if err != nil {
			return orDamaged(f, err)
		}
	}
}

// tarEntry takes up one entry. Types are an allow-list.
func (u *unpacking) tarEntry(h *tar.Header, r io.Reader) error {
	if Sparse(h) {
		return refuse(h.Name, "is a sparse file")
	}
	switch h.Typeflag {
	case tar.TypeXGlobalHeader: // says something about the others, as git does; nothing that we use
		return nil
	case tar.TypeDir:
		return u.dir(h.Name, mode(h.Mode))
	case tar.TypeReg:
		return u.file(h.Name, mode(h.Mode), h.Size, r)
	case tar.TypeSymlink:
		return refuse(h.Name, "is a symbolic link")
	case tar.TypeLink:
		return refuse(h.Name, "is a hard link")
	}
	return refuse(h.Name, "is neither a regular file nor a directory")
}

func mode(m int64) uint32 { return uint32(m & 0o777) } //nolint:gosec // nine bits

// Sparse says whether an entry is a file with holes. A few bytes of an archive make one
// of any length, which no bound on what the archive unfolds to sees.
func Sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}
