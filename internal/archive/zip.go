package archive

import (
	"archive/zip"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"pinfold/sandbox"
)

// readZip takes up the entries of a zip, which can only be read from its end.
func (u *unpacking) readZip(in *input) error {
	file, size, err := u.spool(in)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it has no name any more
	dir := &directory{r: file, left: int64(u.lim.Entries)*entryRoom + 1<<20}
	z, err := zip.NewReader(dir, size)
	if dir.over {
		return tooMuch("has too many entries, or too long names")
	}
	if err != nil {
		return damaged(Zip, err)
	}
	dir.free = true
	if err := u.checkZip(z.File, size); err != nil {
		return err
	}
	for _, f := range z.File {
		if err := u.zipEntry(f); err != nil {
			return orDamaged(Zip, err)
		}
	}
	return nil
}

// entryRoom is how much of a zip's directory each entry may have on average.
const entryRoom = 160

// directory bounds what is read of a zip while its directory is put into memory.
type directory struct {
	r    io.ReaderAt
	left int64
	free bool
	over bool
}

var errDirectory = errors.New("the directory is too large")

// ReadAt implements io.ReaderAt.
func (d *directory) ReadAt(b []byte, at int64) (int, error) {
	if d.free {
		return d.r.ReadAt(b, at)
	}
	if d.left -= int64(len(b)); d.left < 0 {
		d.over = true
		return 0, errDirectory
	}
	return d.r.ReadAt(b, at)
}

// spool keeps the archive in a file without a name.
func (u *unpacking) spool(in *input) (*os.File, int64, error) {
	file, err := os.CreateTemp(u.lim.Dir, "pinfold-zip-*")
	if err != nil {
		return nil, 0, sandbox.Errorf(sandbox.CodeInsufficient, "no place to keep the archive meanwhile: %w", err)
	}
	_ = os.Remove(file.Name()) // the worst is an empty name that stays
	size, err := io.Copy(file, io.LimitReader(in, u.lim.Spool+1))
	switch {
	case in.err != nil:
		err = in.err
	case err != nil:
		err = sandbox.Errorf(sandbox.CodeInsufficient, "the archive cannot be kept meanwhile: %w", err)
	case size > u.lim.Spool:
		err = tooMuch("is larger than is accepted for a zip")
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, size, nil
}

// checkZip adds up what the directory says, before anything is unfolded.
// Entries that share their bytes, the way of the best known bombs, have more
// of them together than the archive has.
func (u *unpacking) checkZip(files []*zip.File, size int64) error {
	if len(files) > u.lim.Entries {
		return tooMuch("has too many entries")
	}
	var packed, unpacked uint64
	for _, f := range files {
		p, n := f.CompressedSize64, f.UncompressedSize64
		if p > uint64(size) || n > uint64(u.lim.Bytes) { //nolint:gosec // neither is negative
			return refuse(f.Name, "says sizes that are not accepted")
		}
		packed, unpacked = packed+p, unpacked+n
		if packed > uint64(size) { //nolint:gosec // not negative
			return refuse(f.Name, "shares its bytes with another")
		}
	}
	switch {
	case unpacked > uint64(u.lim.Bytes): //nolint:gosec // not negative
		return tooMuch("unfolds to more than is accepted")
	case unpacked > ratioFree && unpacked/uint64(u.lim.Ratio) > uint64(size): //nolint:gosec // neither is negative
		return tooMuch("is compressed too strongly")
	}
	return nil
}

// encrypted is the flag of an entry that needs a password.
const encrypted = 1

// zipEntry takes up one entry. Types are an allow-list.
func (u *unpacking) zipEntry(f *zip.File) error {
	m := f.Mode()
	switch {
	case strings.Contains(f.Name, `\`):
		return refuse(f.Name, "has a name with a backslash")
	case f.Flags&encrypted != 0:
		return refuse(f.Name, "is encrypted")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return refuse(f.Name, "is compressed in a way that is not known here")
	case m&fs.ModeSymlink != 0:
		return refuse(f.Name, "is a symbolic link")
	case strings.HasSuffix(f.Name, "/") != m.IsDir():
		return refuse(f.Name, "is a directory by its name or by its type, not both")
	case m.IsDir():
		return u.dir(f.Name, unixMode(f, 0o755))
	case !m.IsRegular():
		return refuse(f.Name, "is neither a regular file nor a directory")
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()                     //nolint:errcheck // read only
	size := int64(f.UncompressedSize64) //nolint:gosec // at most Limits.Bytes
	return u.file(f.Name, unixMode(f, 0o644), size, io.LimitReader(r, size+1))
}

// unixMode is an entry's mode where it has one.
func unixMode(f *zip.File, otherwise uint32) uint32 {
	const unix, macOS = 3, 19
	if by := f.CreatorVersion >> 8; by != unix && by != macOS || f.Mode().Perm() == 0 {
		return otherwise
	}
	return uint32(f.Mode().Perm())
}

// orDamaged returns our own errors as they are, and all others as those of
// bytes that are no archive.
func orDamaged(f Format, err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return err
	}
	return damaged(f, err)
}
