package audit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoints are kept one after another, each a signed note, which has an empty line in
// its middle, followed by an empty line with a dot.
const endOfNote = ".\n"

// lastCheckpoint is the last whole one of a file. Checkpoints are flushed after the
// entries they speak of, so what a crash has cut off can be left out.
func lastCheckpoint(name string, key signer) (Checkpoint, error) {
	var last Checkpoint
	err := eachCheckpoint(name, func(signed []byte) error {
		c, err := openCheckpoint(signed, key.verifier)
		if err == nil && c.Size < last.Size {
			err = errors.New("the sizes of its checkpoints go down")
		}
		last = c
		return err
	})
	return last, err
}

// eachCheckpoint calls f for each checkpoint of a file, which need not be there.
func eachCheckpoint(name string, f func(signed []byte) error) error {
	file, err := os.Open(name) //nolint:gosec // of the log's directory, or named by a person
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	lines := bufio.NewReaderSize(file, maxNote)
	var signed []byte
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF): // the rest is of one that a crash has cut off
			return nil
		case errors.Is(err, bufio.ErrBufferFull) || len(signed)+len(line) > 2*maxNote:
			return errors.New("it has something else than checkpoints")
		case err != nil:
			return err
		case string(line) != endOfNote || len(signed) == 0:
			signed = append(signed, line...)
			continue
		}
		if err := f(signed); err != nil {
			return err
		}
		signed = nil
	}
}

// publish writes checkpoints down and tells the witnesses, at most once a second, until
// the log is closed, and then a last time.
func (l *Log) publish() {
	defer l.ended.Done()
	ticker := time.NewTicker(publishEvery)
	defer ticker.Stop()
	tell := newTeller(l.o.Witnesses, l.o.Log)
	removed := time.Now()
	for {
		select {
		case <-l.closed:
			l.stopped.Wait()
			l.publishHead(tell)
			tell.end()
			return
		case <-ticker.C:
			l.publishHead(tell)
			if time.Since(removed) >= time.Minute {
				l.expire()
				removed = time.Now()
			}
		}
	}
}

// publishHead writes the head down, where it has moved.
func (l *Log) publishHead(tell *teller) {
	l.mu.RLock()
	h, before := l.head, l.published
	l.mu.RUnlock()
	if h.size == before {
		return
	}
	if err := appendNote(l.inside(checkpointsName), h.signed); err != nil {
		l.o.Log.Error("a checkpoint of the audit log was not written down", "size", h.size, "error", err)
		return
	}
	l.mu.Lock()
	l.published = h.size
	l.mu.Unlock()
	tell.tell(l.told(h))
}

// told is what witnesses are told of a head.
func (l *Log) told(h head) Told {
	return Told{Signed: h.signed, Size: h.size, Prove: func(old int64) ([]string, error) {
		proof, err := tlog.ProveTree(h.size, old, storedHashes(l.hashes))
		var all []string
		for _, hash := range proof {
			all = append(all, hash.String())
		}
		return all, err
	}}
}

// appendNote adds a checkpoint to a file of them, on the disk. What a crash has left of
// one before it is ended by the way.
func appendNote(name, signed string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // of the log's directory, or of the operator's
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was flushed
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at, err := endOfNotes(f, info.Size())
	if err != nil {
		return err
	}
	if at < info.Size() {
		if err := f.Truncate(at); err != nil {
			return err
		}
	}
	if _, err := f.WriteAt([]byte(signed+endOfNote), at); err != nil {
		return err
	}
	return flush(f)
}

// endOfNotes is where the last whole checkpoint ends.
func endOfNotes(f io.ReaderAt, size int64) (int64, error) {
	from := max(0, size-2*maxNote)
	b := make([]byte, size-from)
	if _, err := f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	i := bytes.LastIndex(b, []byte("\n"+endOfNote))
	if i < 0 && from > 0 {
		return 0, errors.New("it is no file of checkpoints")
	}
	if i < 0 {
		return 0, nil
	}
	return from + int64(i+1+len(endOfNote)), nil
}
