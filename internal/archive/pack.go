package archive

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"pinfold/sandbox"
)

// maxDepth is deeper than any path can be.
const maxDepth = 2048

// Pack writes what a directory holds as an archive, with names relative to it
// and in their order. What holds more files and directories, or more bytes in
// files, than the limits allow is an error of code too_large, before anything was
// written: a file with holes is as long as it says, whatever it takes inside, and
// an archive has no holes.
// Only regular files and directories with printable names go in; the summary
// counts the rest. A file that grows meanwhile is taken as long as it was when
// it was listed, one that shrinks is filled up with zeros. What a source withholds is
// counted among the rest.
func Pack(ctx context.Context, src Source, root string, f Format, l Limits, w io.Writer) (Summary, error) {
	l = l.withDefaults()
	list, err := src.List(ctx, root, maxDepth, l.Entries)
	if err != nil {
		return Summary{}, err
	}
	if list.More {
		return Summary{}, &sandbox.Error{
			Code: sandbox.CodeTooLarge, Message: "the directory holds more than an archive may have",
			Hint: "fetch its directories one by one",
		}
	}
	p := &packing{ctx: ctx, src: src, base: strings.TrimSuffix(src.Absolute(root), "/") + "/"}
	infos := list.Items
	if err := p.checkSize(infos, l.Bytes); err != nil {
		return Summary{}, err
	}
	p.sum.Skipped = list.Unprintable
	switch f {
	case Tar:
		err = p.tar(infos, w)
	case TarGzip:
		err = p.gzip(infos, w)
	case Zip:
		err = p.zip(infos, w)
	default:
		_, err = ParseFormat(string(f))
	}
	return p.sum, err
}

// packing is one archive on its way out.
type packing struct {
	ctx  context.Context //nolint:containedctx // the call's own
	src  Source
	base string // of all paths
	sum  Summary
}

// name is the entry's name; false for what does not go into an archive.
func (p *packing) name(i sandbox.FileInfo) (string, bool) {
	rel, below := strings.CutPrefix(i.Path, p.base)
	if !below || sandbox.CheckGuestPath("", rel) != nil || i.Type != sandbox.FileRegular && i.Type != sandbox.FileDir || i.Size < 0 {
		p.sum.Skipped++
		return "", false
	}
	return rel, true
}

// checkSize refuses files that are larger together than they may be, and names the
// largest one.
func (p *packing) checkSize(infos []sandbox.FileInfo, most int64) error {
	var sum int64
	var largest sandbox.FileInfo
	for _, i := range infos {
		if _, goes := p.name(i); !goes || i.Type != sandbox.FileRegular {
			continue
		}
		if i.Size > largest.Size {
			largest = i
		}
		if sum += min(i.Size, most+1); sum > most {
			return &sandbox.Error{
				Code: sandbox.CodeTooLarge,
				Message: fmt.Sprintf("the files have more than %s together, which is the most that may come out at once; the largest so far is %s with %s",
					sandbox.FormatSize(most), sandbox.SafeText(largest.Path, 200), sandbox.FormatSize(largest.Size)),
				Hint: "fetch the directories that you need one by one; sparse files, and files with several names, count as often and as long as they look",
			}
		}
	}
	p.sum = Summary{}
	return nil
}

// entries is one format's way to begin an entry.
type entries interface {
	dir(name string, i sandbox.FileInfo) error
	file(name string, i sandbox.FileInfo) (io.Writer, error)
}

func (p *packing) gzip(infos []sandbox.FileInfo, w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeInternal, "compressing: %w", err)
	}
	if err := p.tar(infos, z); err != nil {
		return err
	}
	return written(z.Close())
}

func (p *packing) tar(infos []sandbox.FileInfo, w io.Writer) error {
	t := tar.NewWriter(w)
	if err := p.all(infos, tarEntries{t}); err != nil {
		return err
	}
	return written(t.Close())
}

func (p *packing) zip(infos []sandbox.FileInfo, w io.Writer) error {
	z := zip.NewWriter(w)
	if err := p.all(infos, zipEntries{z}); err != nil {
		return err
	}
	return written(z.Close())
}

// all writes every entry.
func (p *packing) all(infos []sandbox.FileInfo, to entries) error {
	for _, i := range infos {
		name, ok := p.name(i)
		if !ok {
			continue
		}
		if i.Type == sandbox.FileDir {
			if err := to.dir(name+"/", i); err != nil {
				return written(err)
			}
			p.sum.Directories++
			continue
		}
		if err := p.file(name, i, to); err != nil {
			return err
		}
	}
	return nil
}

// file writes one file. Its header is written with its first byte, so that a
// file that is gone by now can still be left out.
func (p *packing) file(name string, i sandbox.FileInfo, to entries) error {
	b := &body{size: i.Size}
	b.begin = func() (io.Writer, error) {
		i.Size = b.size
		return to.file(name, i)
	}
	length := i.Size
	if p.src.Checked() {
		length = -1
	}
	if length != 0 {
		_, err := p.src.ReadFile(p.ctx, i.Path, 0, length, b)
		switch {
		case b.err != nil:
			return written(b.err)
		case err != nil && b.w == nil && vanished(err):
			p.sum.Skipped++
			return nil
		case err != nil:
			return err
		}
	}
	if missing := b.size - b.n; missing > 0 {
		p.sum.Changed++
		if _, err := io.CopyN(b, zeros{}, missing); err != nil {
			return written(err)
		}
	}
	if _, err := b.Write(nil); err != nil { // of an empty file
		return written(err)
	}
	p.sum.Files++
	p.sum.Bytes += b.size
	return nil
}

// vanished says whether a file is not there any more, is something else now, or must not
// come out.
func vanished(err error) bool {
	switch sandbox.AsError(err).Code {
	case sandbox.CodeFileNotFound, sandbox.CodeNotRegularFile, sandbox.CodePathInvalid, sandbox.CodeWithheld:
		return true
	}
	return false
}

// body begins an entry with the first Write.
type body struct {
	begin func() (io.Writer, error)
	size  int64 // of what will come
	w     io.Writer
	n     int64
	err   error // of the archive, not of the source
}

// Sized says how much will come, where that is not what was listed.
func (b *body) Sized(n int64) { b.size = n }

// Write implements io.Writer.
func (b *body) Write(p []byte) (int, error) {
	if b.w == nil && b.err == nil {
		b.w, b.err = b.begin()
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.w.Write(p)
	b.n += int64(n)
	b.err = err
	return n, err
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// written is the error of a reader that went away.
func written(err error) error {
	var known *sandbox.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return sandbox.Errorf(sandbox.CodeInternal, "writing the archive: %w", err)
}

type tarEntries struct{ t *tar.Writer }

func (e tarEntries) dir(name string, i sandbox.FileInfo) error {
	return e.t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: int64(i.Mode & 0o777), ModTime: second(i.MTime)})
}

func (e tarEntries) file(name string, i sandbox.FileInfo) (io.Writer, error) {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: i.Size, Mode: int64(i.Mode & 0o777), ModTime: second(i.MTime)}
	return e.t, e.t.WriteHeader(h)
}

type zipEntries struct{ z *zip.Writer }

func (e zipEntries) header(name string, i sandbox.FileInfo, method uint16) *zip.FileHeader {
	h := &zip.FileHeader{Name: name, Method: method, Modified: second(i.MTime)}
	m := fs.FileMode(i.Mode & 0o777)
	if i.Type == sandbox.FileDir {
		m |= fs.ModeDir
	}
	h.SetMode(m)
	return h
}

func (e zipEntries) dir(name string, i sandbox.FileInfo) error {
	_, err := e.z.CreateHeader(e.header(name, i, zip.Store))
	return err
}

func (e zipEntries) file(name string, i sandbox.FileInfo) (io.Writer, error) {
	return e.z.CreateHeader(e.header(name, i, zip.Deflate))
}

// second is a time that every format can hold.
func second(t time.Time) time.Time {
	if t.Year() < 1980 || t.Year() > 2100 {
		return time.Unix(315532800, 0).UTC() // 1980, where zip begins
	}
	return t.Truncate(time.Second)
}
