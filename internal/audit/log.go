package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Options are what a Log works with.
type Options struct {
	Dir string // made if need be; its parent must be there
	// Name is the log's, which its key carries. It matters when the key is made;
	// empty: one is made up.
	Name string
	// KeepTexts keeps contents, not only their digests; of an entry at most TextBytes
	// bytes in all, for TextsFor (0: for ever).
	KeepTexts bool
	TextBytes int64
	TextsFor  time.Duration
	// Strict says that what cannot be recorded must not be.
	Strict    bool
	Witnesses []Witness    // are told of checkpoints
	Log       *slog.Logger // nil: nowhere
	// Now is the clock; nil: the host's.
	Now func() time.Time

	step func(name string) // of tests; nil: nobody is told
}

// Log is an open log, the only one that writes to its directory. It is safe for
// concurrent use.
type Log struct {
	o      Options
	key    signer
	lock   *os.File
	reader *os.File // the entries, for who only reads

	// What commit works with: one at a time, in the goroutine that began with Open. Others
	// read the hashes.
	entries, hashes *os.File
	edge            edge
	bytes           int64 // of entries that are on the disk
	reserved        int64 // up to there the disk has room for entries
	lost            lost
	texts           texts
	line            []byte

	queue   chan *pending
	closed  chan struct{}  // closed by Close
	stopped sync.WaitGroup // run
	ended   sync.WaitGroup // publish, which outlives it
	senders sync.WaitGroup // who puts something into the queue

	mu        sync.RWMutex
	head      head
	offsets   []int64 // of every blockEntries-th entry
	broken    error   // why nothing can be recorded now
	full      error   // why there is no room for more than what is under way
	tried     time.Time
	published int64 // the size of the last checkpoint that is written down
	closing   bool
}

// head is the log as it stands on the disk.
type head struct {
	size, bytes int64
	root        tlog.Hash
	signed      string
}

// pending is an event that waits to be an entry; without one it asks whether the log
// works, or has something done while nothing is written.
type pending struct {
	event *records.Event
	do    func() error
	salt  string
	parts map[string]string
	leaf  []byte
	index int64
	head  head
	err   error
	done  chan struct{}
}

const (
	maxBatch     = 512 // entries that are written with one flush
	maxQueue     = 4 * maxBatch
	blockEntries = 256
	reserveBytes = 4 << 20 // more than a full queue of the longest lines
	retryEvery   = time.Second
	publishEvery = time.Second
)

// Strict says that what cannot be recorded must not be.
func (l *Log) Strict() bool { return l.o.Strict }

// PublicKey is what checkpoints and receipts are checked with, as in key.pub.
func (l *Log) PublicKey() string { return l.key.public }

// Check says why nothing new can be recorded, as an error of code audit_unavailable, or
// nil. It lets a log that failed try again, at most once a second; the log does so by itself,
// too.
func (l *Log) Check() error {
	l.mu.RLock()
	err, again, closing := cmp.Or(l.broken, l.full), time.Since(l.tried) >= retryEvery, l.closing
	l.mu.RUnlock()
	if !closing && (err == nil || !again) {
		return err
	}
	return l.commitOne(&pending{})
}

// Record makes an event an entry and returns when it is on the disk, with its receipt.
// The context is not waited for: a record that was begun is finished.
func (l *Log) Record(_ context.Context, event records.Event) (*sandbox.Receipt, error) {
	p := &pending{event: &event, salt: newSalt()}
	p.parts = make(map[string]string, len(event.Parts))
	for name, content := range event.Parts {
		p.parts[name] = digest(p.salt, name, content)
	}
	if err := l.commitOne(p); err != nil {
		return nil, err
	}
	return l.receipt(p.index, p.leaf, p.salt, p.head)
}

func (l *Log) commitOne(p *pending) error {
	p.done = make(chan struct{})
	l.mu.RLock()
	if l.closing {
		l.mu.RUnlock()
		return unavailable(errors.New("the log is closed"))
	}
	l.senders.Add(1)
	l.mu.RUnlock()
	l.queue <- p
	l.senders.Done()
	<-p.done
	return p.err
}

// run commits what comes, as much at once as there is, and tries again by itself.
func (l *Log) run() {
	defer l.stopped.Done()
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	for {
		select {
		case p := <-l.queue:
			l.commit(l.gather(p))
		case <-ticker.C:
			l.retry()
		case <-l.closed:
			l.commitRest()
			return
		}
	}
}

// commitRest commits what waits when the log is closed. What is missing then is said now, or
// by no entry.
func (l *Log) commitRest() {
	for {
		select {
		case p := <-l.queue:
			l.commit(l.gather(p))
		default:
			l.retry()
			if n := l.lost.entries; n > 0 {
				l.o.Log.Error("the audit log was closed without an entry that says how many records are missing", "missing", n)
			}
			return
		}
	}
}

// retry tries to write where that has failed, so that what is missing is said also when
// nobody asks for anything.
func (l *Log) retry() {
	l.mu.RLock()
	broken := l.broken
	l.mu.RUnlock()
	if broken != nil || l.lost.entries > 0 {
		l.commit([]*pending{{done: make(chan struct{})}})
	}
}

func (l *Log) gather(first *pending) []*pending {
	batch := []*pending{first}
	for len(batch) < maxBatch {
		select {
		case p := <-l.queue:
			batch = append(batch, p)
		default:
			return batch
		}
	}
	return batch
}

// Close writes the last checkpoint, tells the witnesses, within a bound, and lets go of
// the directory.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil
	}
	l.closing = true
	l.mu.Unlock()
	l.senders.Wait()
	close(l.closed)
	l.ended.Wait()
	l.texts.leave()
	return errors.Join(l.entries.Close(), l.reader.Close(), l.hashes.Close(), l.lock.Close())
}

// Head returns the last signed head, and the key to check it with.
func (l *Log) Head() (size int64, checkpoint string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.head.size, l.head.signed
}

// receipt proves that an entry is in the log as it stood at a head.
func (l *Log) receipt(index int64, leaf []byte, salt string, h head) (*sandbox.Receipt, error) {
	proof, err := tlog.ProveRecord(h.size, index, storedHashes(l.hashes))
	if err != nil {
		return nil, unavailable(err)
	}
	r := &sandbox.Receipt{Index: index, Leaf: string(leaf), Salt: salt, Proof: make([]string, len(proof)), Checkpoint: h.signed}
	if salt == noSalt {
		r.Salt = ""
	}
	for i, hash := range proof {
		r.Proof[i] = hash.String()
	}
	return r, nil
}

// unavailable is why something cannot be recorded.
func unavailable(err error) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeAuditUnavailable, Message: "the audit log cannot be written: " + err.Error(), Err: err,
		Hint: "make room on the disk of the server's state directory, or make it writable; the server tries again by itself",
	}
}

// inside is a path in the log's directory.
func (l *Log) inside(name string) string { return filepath.Join(l.o.Dir, name) }
