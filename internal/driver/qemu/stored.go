//go:build linux

package qemu

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/failure"
)

// # Bases on disk
//
// A base takes seconds to boot. Each that was booted is also written to a directory of this
// user's (Options.CacheDir), so that the next process starts with it: a run without a server,
// a doctor, a server after a restart. A file has a checksum, what the machine's kernel can
// enforce, and the base in the form of a snapshot (memory.go), which says by its fingerprint
// what it goes on with. Its name is made of the fingerprint.
//
// Who can write there decides what is in every machine that starts from it, so the directory
// and its files have to be this user's, and nobody else's to write. The checksum is against
// accidents, such as a host that lost power.

// Bounds of what is kept: files, the last used, and bytes of one and of all.
const (
	maxStored     = maxBases
	maxStoredFile = 512 << 20
	maxStoredAll  = 1 << 30
	maxReport     = 256 << 10
)

// storedSuffix ends the names of bases, and draftPrefix begins those of what is being written.
const storedSuffix, draftPrefix = ".base", ".draft-"

// abandoned is how old a draft is that nobody writes any more.
const abandoned = time.Hour

var checksums = crc32.MakeTable(crc32.Castagnoli)

// storedAs returns the file of a base.
func (d *Driver) storedAs(f fingerprint) string {
	sum := sha256.Sum256(f.encode())
	return filepath.Join(d.o.CacheDir, hex.EncodeToString(sum[:16])+storedSuffix)
}

// readStored returns a base that another process has booted, or nil.
func (d *Driver) readStored(ctx context.Context, l launch) *base {
	if d.o.CacheDir == "" || d.o.cold {
		return nil
	}
	here, err := d.fingerprint(l)
	if err != nil {
		return nil
	}
	name := d.storedAs(here)
	b, err := readBase(ctx, name, here, l)
	switch {
	case err == nil:
		now := time.Now()
		_ = os.Chtimes(name, now, now) // it was used
		return b
	case ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotOurs):
		_ = os.Remove(name) // another is written in its place
	}
	return nil
}

var errNotOurs = errors.New("others can write to it")

func readBase(ctx context.Context, name string, here fingerprint, l launch) (*base, error) {
	if err := onlyOurs(filepath.Dir(name), unix.S_IFDIR); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := onlyOurs(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.S_IFREG); err != nil {
		return nil, err
	}
	want := make([]byte, crc32.Size)
	if _, err := io.ReadFull(f, want); err != nil {
		return nil, err
	}
	sum := crc32.New(checksums)
	content := io.TeeReader(bufio.NewReaderSize(io.LimitReader(f, maxStoredFile), window), sum)
	text, err := readPart(content, maxReport)
	if err != nil {
		return nil, err
	}
	b := &base{disk: l.disk, stored: name}
	if err := json.Unmarshal(text, &b.report); err != nil {
		return nil, err
	}
	s, err := readSnapshot(ctx, content, here, l.shape)
	if err != nil {
		return nil, err
	}
	defer s.close() // what is sealed is opened anew
	if !bytes.Equal(sum.Sum(nil), want) {
		return nil, errForm
	}
	b.saved, err = s.sealed()
	return b, err
}

// onlyOurs says whether a file is of that type, this user's, and nobody else's to write.
func onlyOurs(name string, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != kind || st.Mode&0o022 != 0 || int(st.Uid) != os.Geteuid() {
		return errNotOurs
	}
	return nil
}

// sealed returns the same as files that nobody can write to any more.
func (s *saved) sealed() (*saved, error) {
	memory, err := sealed(s.memory, unix.O_RDWR) // as QEMU opens it
	if err != nil {
		return nil, failure.Of("keep the machine's memory", err)
	}
	state, err := sealed(s.state, unix.O_RDONLY)
	if err != nil {
		_ = memory.Close()
		return nil, failure.Of("keep the machine's state", err)
	}
	return &saved{memory: memory, state: state}, nil
}

// store writes a base for other processes, whole or not at all. Without it they boot theirs.
func (d *Driver) store(b *base, l launch) {
	if d.o.CacheDir == "" || b.saved == nil || b.stored != "" {
		return
	}
	here, err := d.fingerprint(l)
	if err != nil {
		return
	}
	if err := os.MkdirAll(d.o.CacheDir, 0o700); err != nil || onlyOurs(d.o.CacheDir, unix.S_IFDIR) != nil {
		return
	}
	f, err := os.CreateTemp(d.o.CacheDir, draftPrefix)
	if err != nil {
		return
	}
	err = errors.Join(writeBase(f, here, b.report, b.saved), f.Close())
	name := d.storedAs(here)
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return
	}
	d.bases.mu.Lock()
	b.stored = name
	d.bases.mu.Unlock()
	d.collectStored()
}

func writeBase(f *os.File, here fingerprint, report driver.Report, s *saved) error {
	told, err := json.Marshal(report)
	if err != nil {
		return err
	}
	state, err := io.ReadAll(io.NewSectionReader(s.state, 0, maxState+1))
	if err != nil {
		return err
	}
	sum := crc32.New(checksums)
	out := bufio.NewWriterSize(f, window)
	w := &bounded{w: io.MultiWriter(out, sum), left: maxStoredFile}
	if _, err := out.Write(make([]byte, crc32.Size)); err != nil {
		return err
	}
	for _, part := range [][]byte{told, here.encode(), state} {
		if err := writePart(w, part); err != nil {
			return err
		}
	}
	buf := make([]byte, pieceHeader+window)
	for at := int64(0); at < here.Memory<<20; at += window {
		if _, err := s.memory.ReadAt(buf[pieceHeader:], at); err != nil {
			return err
		}
		if err := writePieces(w, buf, at); err != nil {
			return err
		}
	}
	if _, err := w.Write(make([]byte, pieceHeader)); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err = f.WriteAt(binary.BigEndian.AppendUint32(nil, sum.Sum32()), 0)
	return err
}

// bounded is a writer that takes so many bytes and no more.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errors.New("it is too large to be kept")
	}
	return b.w.Write(p)
}

// collectStored removes what is beyond the bounds, the last used last, and drafts that nobody
// writes any more.
func (d *Driver) collectStored() {
	entries, err := os.ReadDir(d.o.CacheDir)
	if err != nil {
		return
	}
	var all []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
		case strings.HasSuffix(e.Name(), storedSuffix):
			all = append(all, info)
		case strings.HasPrefix(e.Name(), draftPrefix) && time.Since(info.ModTime()) > abandoned:
			_ = os.Remove(filepath.Join(d.o.CacheDir, e.Name()))
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	size := int64(0)
	for n, info := range all {
		if size += info.Size(); n >= maxStored || size > maxStoredAll {
			_ = os.Remove(filepath.Join(d.o.CacheDir, info.Name()))
		}
	}
}
