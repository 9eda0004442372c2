package audit

import (
	"os"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// lost counts what could not be recorded since the last entry.
type lost struct {
	entries int64
	file    bool // the file of entries must be opened anew
}

// batch is what one commit is about to add.
type batch struct {
	lines  []byte
	hashes []tlog.Hash
	edge   edge
	starts []int64 // where each entry begins, beyond the end of the file
}

// commit makes entries of what waits: all of it, or none.
func (l *Log) commit(all []*pending) {
	all = slices.DeleteFunc(all, func(p *pending) bool {
		if p.do != nil {
			p.err = p.do()
			close(p.done)
		}
		return p.do != nil
	})
	if len(all) == 0 {
		return
	}
	err := l.write(all)
	if err != nil {
		err = unavailable(err)
		l.fail(all, err)
	}
	h := l.head // only this goroutine sets it
	for _, p := range all {
		p.head, p.err = h, err
		close(p.done)
	}
}

// write puts entries on the disk and moves the head.
func (l *Log) write(all []*pending) error {
	if err := l.repair(); err != nil {
		return err
	}
	b := batch{lines: l.line[:0], edge: l.edge}
	if l.lost.entries > 0 {
		gap := &pending{event: &records.Event{Entry: sandbox.AuditEntry{Kind: sandbox.AuditGap, Missing: l.lost.entries}}, salt: newSalt()}
		if err := l.put(&b, gap); err != nil {
			return err
		}
	}
	l.keepTexts(b.edge.size, all)
	for _, p := range all {
		if p.event == nil {
			continue
		}
		if err := l.put(&b, p); err != nil {
			return err
		}
	}
	if len(b.starts) == 0 {
		err := l.makeRoom(0)
		if err == nil {
			l.mu.Lock()
			l.broken = nil
			l.mu.Unlock()
		}
		return err
	}
	err := l.append(&b)
	if err != nil {
		l.texts.leave() // what it has of this batch is of no entry
	}
	return err
}

// keepTexts writes the contents of what is about to be recorded, the first of it at an
// index, where they are kept. That this fails is said in the entries.
func (l *Log) keepTexts(from int64, all []*pending) {
	if !l.texts.on {
		return
	}
	index := from
	for _, p := range all {
		if p.event != nil {
			p.event.Entry.Texts = l.texts.add(index, p)
			index++
		}
	}
	if err := l.texts.write(from, l.o.Now()); err != nil {
		l.o.Log.Error("texts were not kept beside the audit log", "entry", from, "error", err)
		for _, p := range all {
			if p.event != nil && p.event.Entry.Texts == textsKept {
				p.event.Entry.Texts = textsFailed
			}
		}
		l.texts.leave()
	}
	l.at("texts")
}

// put adds one entry to a batch.
func (l *Log) put(b *batch, p *pending) error {
	e := &p.event.Entry
	e.V, e.Index, e.SaltSHA256, e.Time, e.Digests = 1, b.edge.size, commitment(p.salt), l.now(), p.parts
	var err error
	if p.leaf, err = makeLeaf(*e); err != nil {
		return err
	}
	p.index = e.Index
	b.starts = append(b.starts, int64(len(b.lines)))
	b.lines = appendLine(b.lines, p.leaf, p.salt)
	b.hashes = append(b.hashes, b.edge.add(tlog.RecordHash(p.leaf))...)
	return nil
}

// append writes a batch. The entries are on the disk before a head says that they are
// there; the hashes can be made again.
func (l *Log) append(b *batch) error {
	if err := l.makeRoom(int64(len(b.lines))); err != nil {
		return err
	}
	signed, err := l.key.sign(Checkpoint{Name: l.key.Name(), Size: b.edge.size, Root: b.edge.root()})
	if err != nil {
		return err
	}
	l.lost.file = true // until it is known to be well
	if l.o.step != nil {
		if _, err := l.entries.WriteAt(b.lines[:len(b.lines)/2], l.bytes); err != nil {
			return err
		}
		l.at("torn")
	}
	if _, err := l.entries.WriteAt(b.lines, l.bytes); err != nil {
		return err
	}
	l.at("written")
	if err := flush(l.entries); err != nil {
		return err
	}
	l.at("flushed")
	hashes := make([]byte, 0, len(b.hashes)*tlog.HashSize)
	for _, h := range b.hashes {
		hashes = append(hashes, h[:]...)
	}
	if _, err := l.hashes.WriteAt(hashes, tlog.StoredHashCount(l.edge.size)*tlog.HashSize); err != nil {
		return err
	}
	l.at("hashed")
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, start := range b.starts {
		if (l.edge.size+int64(i))%blockEntries == 0 {
			l.offsets = append(l.offsets, l.bytes+start)
		}
	}
	l.bytes += int64(len(b.lines))
	l.edge, l.line = b.edge, b.lines[:0]
	l.head = head{size: b.edge.size, bytes: l.bytes, root: b.edge.root(), signed: signed}
	l.lost, l.broken = lost{}, nil
	return nil
}

// makeRoom sees to it that a disk that fills up is noticed while there is still room for
// what is under way.
func (l *Log) makeRoom(bytes int64) error {
	if l.bytes+bytes+reserveBytes/2 <= l.reserved {
		return nil
	}
	err := reserve(l.entries, l.bytes, bytes+reserveBytes)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full, l.tried = nil, time.Now()
	if err == nil {
		l.reserved = l.bytes + bytes + reserveBytes
		return nil
	}
	l.full = unavailable(err)
	if bytes > 0 && l.bytes+bytes <= l.reserved {
		return nil // this fits still; what has not begun is refused
	}
	return err
}

// fail remembers what was not recorded.
func (l *Log) fail(all []*pending, err error) {
	for _, p := range all {
		if p.event != nil {
			l.lost.entries++
			l.o.Log.Error("not recorded in the audit log", "kind", string(p.event.Entry.Kind), "tenant", p.event.Entry.Tenant, "id", p.event.Entry.ID, "error", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken, l.tried = err, time.Now()
}

// repair brings the file of entries back to what is known to be on the disk, where a
// write has failed: the kernel may have forgotten what it could not flush.
func (l *Log) repair() error {
	if !l.lost.file {
		return nil
	}
	f, err := os.OpenFile(l.inside(entriesName), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(l.bytes)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	_ = l.entries.Close()
	l.entries, l.reserved, l.lost.file = f, 0, false
	return nil
}

// now is the time as entries claim it.
func (l *Log) now() time.Time { return l.o.Now().UTC().Round(0).Truncate(time.Microsecond) }

// at tells a test how far a write has come.
func (l *Log) at(step string) {
	if l.o.step != nil {
		l.o.step(step)
	}
}
