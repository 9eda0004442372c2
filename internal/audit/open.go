package audit

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Open opens a log for writing, or makes it, and looks through all of it: its entries
// must be those of the last checkpoint. What a crash has cut off behind that is moved
// aside, and an entry says so. Errors are *sandbox.Error: conflict where another process
// has it, state_corrupt where it is not what it was, config_invalid where it cannot be
// used.
func Open(o Options) (*Log, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Log{o: o, queue: make(chan *pending, maxQueue), closed: make(chan struct{})}
	l.texts = texts{on: o.KeepTexts, dir: l.inside(textsName), most: o.TextBytes, keep: o.TextsFor}
	torn, err := l.open()
	if err != nil {
		for _, f := range []*os.File{l.entries, l.hashes, l.reader, l.lock} {
			if f != nil {
				_ = f.Close()
			}
		}
		return nil, err
	}
	l.stopped.Add(1)
	l.ended.Add(1)
	go l.run()
	go l.publish()
	if torn > 0 {
		if _, err := l.Record(context.Background(), records.Event{Entry: sandbox.AuditEntry{Kind: sandbox.AuditTorn, Missing: torn}}); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

func (l *Log) open() (torn int64, err error) {
	if err := os.MkdirAll(l.inside(textsName), 0o700); err != nil {
		return 0, unusable(err)
	}
	if err := l.takeLock(); err != nil {
		return 0, err
	}
	_, err = os.Lstat(l.inside(entriesName))
	isNew := errors.Is(err, os.ErrNotExist)
	if l.key, err = loadKey(l.o.Dir, cmp.Or(l.o.Name, "pinfold-"+records.NewID("")[:10]), isNew); err != nil {
		return 0, err
	}
	for name, f := range map[string]**os.File{entriesName: &l.entries, hashesName: &l.hashes} {
		if *f, err = os.OpenFile(l.inside(name), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return 0, unusable(err)
		}
	}
	if l.reader, err = os.Open(l.inside(entriesName)); err != nil {
		return 0, unusable(err)
	}
	if err := syncDir(l.o.Dir); err != nil {
		return 0, unusable(err)
	}
	last, err := lastCheckpoint(l.inside(checkpointsName), l.key)
	if err != nil {
		return 0, corrupt(l.o.Dir, err.Error(), err)
	}
	if torn, err = l.load(last); err != nil {
		return 0, err
	}
	l.published = last.Size
	signed, err := l.key.sign(Checkpoint{Name: l.key.Name(), Size: l.edge.size, Root: l.edge.root()})
	if err != nil {
		return 0, unusable(err)
	}
	l.head = head{size: l.edge.size, bytes: l.bytes, root: l.edge.root(), signed: signed}
	return torn, nil
}

func (l *Log) takeLock() error {
	f, err := os.OpenFile(l.inside(lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return unusable(err)
	}
	l.lock = f
	taken, err := lockFile(f)
	if err != nil {
		return unusable(err)
	}
	if !taken {
		return &sandbox.Error{
			Code: sandbox.CodeConflict, Field: "audit", Message: "another process writes to the audit log in " + l.o.Dir,
			Hint: "end that server first: two writers would make two logs of one",
		}
	}
	return nil
}

// load reads all entries and makes the hashes that are missing. It returns how many bytes
// of a write that was cut off it has moved aside.
func (l *Log) load(last Checkpoint) (torn int64, err error) {
	if last.Size == 0 && last.Root == (tlog.Hash{}) {
		last.Root = l.edge.root()
	}
	r := bufio.NewReaderSize(io.NewSectionReader(l.entries, 0, 1<<62), 1<<20)
	known := bufio.NewReaderSize(io.NewSectionReader(l.hashes, 0, 1<<62), 1<<16)
	w := hashWriter{f: l.hashes, known: known}
	for {
		if l.edge.size == last.Size && l.edge.root() != last.Root {
			return 0, corrupt(l.o.Dir, fmt.Sprintf("its first %d entries are not those of its last checkpoint", last.Size), nil)
		}
		line, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, unusable(err)
		}
		if err != nil && len(line) == 0 {
			break
		}
		leaf, ok := l.ours(line, err == nil, l.edge.size < last.Size)
		if !ok {
			if torn, err = l.tornAt(last); err != nil {
				return 0, err
			}
			break
		}
		if l.edge.size%blockEntries == 0 {
			l.offsets = append(l.offsets, l.bytes)
		}
		if err := w.write(l.edge.add(tlog.RecordHash(leaf))); err != nil {
			return 0, unusable(err)
		}
		l.bytes += int64(len(line))
	}
	if l.edge.size < last.Size {
		return 0, corrupt(l.o.Dir, fmt.Sprintf("it has %d entries, and had %d", l.edge.size, last.Size), nil)
	}
	return torn, w.end()
}

// ours says whether a line is the next entry. Of those that the last checkpoint vouches
// for, its root says more than their form.
func (l *Log) ours(line []byte, ended, checked bool) (leaf []byte, ok bool) {
	if !ended {
		return nil, false
	}
	line = line[:len(line)-1]
	leaf, salt, err := splitLine(line)
	return leaf, err == nil && (checked && saltFits(leaf, salt) || whole(l.edge.size, line))
}

// tornAt is for a line that is no entry: behind the last checkpoint a crash has left it.
func (l *Log) tornAt(last Checkpoint) (int64, error) {
	if l.edge.size < last.Size {
		return 0, corrupt(l.o.Dir, fmt.Sprintf("entry %d is not one", l.edge.size), nil)
	}
	torn, err := l.setAside()
	if err != nil {
		return 0, unusable(err)
	}
	return torn, nil
}

// setAside moves what follows the last whole entry into a file of its own.
func (l *Log) setAside() (int64, error) {
	info, err := l.entries.Stat()
	if err != nil {
		return 0, err
	}
	rest := info.Size() - l.bytes
	name := fmt.Sprintf("%s%d", tornName, l.edge.size)
	aside, err := os.OpenFile(l.inside(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(aside, io.NewSectionReader(l.entries, l.bytes, rest))
	if err == nil {
		err = aside.Sync()
	}
	if cErr := aside.Close(); err == nil {
		err = cErr
	}
	if err == nil {
		err = l.entries.Truncate(l.bytes)
	}
	if err == nil {
		err = l.entries.Sync()
	}
	l.o.Log.Warn("moved aside what a crash had cut off at the end of the audit log", "bytes", rest, "entry", l.edge.size, "file", name)
	return rest, err
}

// hashWriter compares the tree's hashes with those that are there, and writes those that
// differ or are missing.
type hashWriter struct {
	f       *os.File
	known   io.Reader
	n       int64 // hashes so far
	buffer  []byte
	from    int64 // where buffer goes
	differs bool
}

func (w *hashWriter) write(all []tlog.Hash) error {
	for _, h := range all {
		var had tlog.Hash
		if !w.differs {
			_, err := io.ReadFull(w.known, had[:])
			w.differs = err != nil || had != h
			w.from = w.n * tlog.HashSize
		}
		if w.differs {
			w.buffer = append(w.buffer, h[:]...)
		}
		w.n++
	}
	if len(w.buffer) > 1<<20 {
		return w.flush()
	}
	return nil
}

func (w *hashWriter) flush() error {
	_, err := w.f.WriteAt(w.buffer, w.from)
	w.from += int64(len(w.buffer))
	w.buffer = w.buffer[:0]
	return err
}

// end writes what is left; hashes beyond the entries are of none.
func (w *hashWriter) end() error {
	if err := w.flush(); err != nil {
		return unusable(err)
	}
	if err := w.f.Truncate(w.n * tlog.HashSize); err != nil {
		return unusable(err)
	}
	return nil
}
