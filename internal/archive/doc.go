// Package archive takes tar and zip archives into a sandbox and out of it.
//
// An archive from outside is hostile: it may name paths that leave the
// directory, bring links, name a file twice, or grow without end. And what comes
// out of a sandbox will be unpacked by tools that check little. So in both
// directions an archive holds regular files and directories only, under clean
// local names (sandbox.CheckGuestPath), each once; entries, bytes, headers
// and the ratio of compression are bounded; and an archive that breaks a rule
// changes nothing at all: its files wait in a directory of their own until the
// whole of it has been checked.
//
// Owners, times and set-user-id bits are not taken over. The package moves
// bytes between an archive and a Source or Sink; who may do that, and how much
// room there is, others say.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"pinfold/sandbox"
)

// Format is a kind of archive.
type Format string

// The formats.
const (
	Tar     Format = "tar"
	TarGzip Format = "tar.gz"
	Zip     Format = "zip"
)

// Formats lists the formats in the order in which people are told of them.
func Formats() []Format { return []Format{Tar, TarGzip, Zip} }

// ParseFormat reads a format's name; "tgz" is "tar.gz". The error has code
// request_invalid and the field format.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Tar, TarGzip, Zip:
		return f, nil
	case "tgz":
		return TarGzip, nil
	}
	return "", &sandbox.Error{
		Code: sandbox.CodeRequestInvalid, Field: "format",
		Message: fmt.Sprintf("\"%s\" is not a format of archives", sandbox.SafeText(s, 40)), Hint: "use tar, tar.gz or zip",
	}
}

// MediaType is the format's type in HTTP.
func (f Format) MediaType() string {
	switch f {
	case TarGzip:
		return "application/gzip"
	case Zip:
		return "application/zip"
	}
	return "application/x-tar"
}

// Source is where Pack reads. Paths are absolute or relative to the home; those
// of a listing are absolute. ReadFile reads at most length bytes, -1 for all. Where the
// source is Checked, what ReadFile gives may be longer or shorter than the file is listed
// with: it tells a writer with a method Sized before it writes. What must not come out is an
// error of code withheld.
type Source interface {
	Checked() bool
	Absolute(name string) string // from the root on; a name is relative to the home directory
	List(ctx context.Context, dir string, depth, limit int) (sandbox.Listing[sandbox.FileInfo], error)
	ReadFile(ctx context.Context, name string, offset, length int64, w io.Writer) (int64, error)
}

// Sink is where Unpack writes. WriteFile makes the directories above a file;
// Move replaces a regular file and nothing else; Remove removes a directory
// with all it holds. No method follows a link.
type Sink interface {
	List(ctx context.Context, dir string, depth, limit int) (sandbox.Listing[sandbox.FileInfo], error)
	Stat(ctx context.Context, name string) (sandbox.FileInfo, error)
	Mkdir(ctx context.Context, name string, mode uint32) error
	WriteFile(ctx context.Context, name string, mode uint32, size int64, r io.Reader) error
	Move(ctx context.Context, from, to string) error
	Remove(ctx context.Context, name string) error
}

// Limits bound an archive. A zero field has the default.
type Limits struct {
	Entries int    // files and directories, those in between included; default 100,000
	Bytes   int64  // of all files together; default 10 GiB
	Ratio   int64  // unpacked bytes for each byte of the archive; default 200
	Spool   int64  // the most bytes of a zip, which is kept on disk meanwhile; default 2 GiB
	Dir     string // where a zip is kept, in a file without a name; default the system's temporary directory
}

// Default limits, and what is granted before ratios are looked at: small
// files of zeros compress beyond any ratio.
const (
	defaultEntries = 100_000
	defaultBytes   = 10 << 30
	defaultRatio   = 200
	defaultSpool   = 2 << 30
	ratioFree      = 16 << 20
	headerRoom     = 1 << 10  // bytes of headers and padding for each entry
	headerExtra    = 16 << 20 // and for all together
)

func (l Limits) withDefaults() Limits {
	if l.Entries <= 0 {
		l.Entries = defaultEntries
	}
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Ratio <= 0 {
		l.Ratio = defaultRatio
	}
	if l.Spool <= 0 {
		l.Spool = defaultSpool
	}
	return l
}

// headers is how many bytes an archive may have besides its content.
func (l Limits) headers() int64 { return int64(l.Entries)*headerRoom + headerExtra }

// Summary says what was packed or unpacked.
type Summary struct {
	Files       int   `json:"files"`
	Directories int   `json:"directories"`
	Bytes       int64 `json:"bytes"` // of the files
	// Skipped counts what Pack left out: links, devices, pipes, sockets, and
	// what was gone before it could be read.
	Skipped int `json:"skipped"`
	// Changed counts the files that shrank while Pack read them and were
	// filled up with zeros.
	Changed int `json:"changed"`
}

// refuse is the error for an entry that breaks a rule.
func refuse(name, why string) error {
	return &sandbox.Error{
		Code: sandbox.CodeUnsafeArchive, Message: fmt.Sprintf("entry \"%s\" %s", sandbox.SafeText(name, 200), why),
		Hint: "nothing was unpacked; make the archive from regular files and directories with relative names",
	}
}

// tooMuch is the error for an archive that goes beyond a limit.
func tooMuch(why string) error {
	return &sandbox.Error{Code: sandbox.CodeUnsafeArchive, Message: "the archive " + why, Hint: "nothing was unpacked; send it in smaller parts"}
}

// errDamaged is the cause of every error about bytes that are no archive of the format.
var errDamaged = errors.New("no archive of the format")

// damaged is the error for bytes that are no archive of the format.
func damaged(f Format, err error) error {
	why := "is not a whole " + string(f) + " archive"
	if errors.Is(err, io.ErrUnexpectedEOF) {
		why = "ends too early"
	}
	return &sandbox.Error{Code: sandbox.CodeUnsafeArchive, Message: "the archive " + why, Hint: "nothing was unpacked; check the file and the format", Err: fmt.Errorf("%w: %w", errDamaged, err)}
}
