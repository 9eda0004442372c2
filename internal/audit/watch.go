package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"pinfold/sandbox"
)

// WatchDir is where a server keeps what it has seen of others' logs, in its state directory.
const WatchDir = "witness"

// MaxTold is the most bytes of a body that Watcher.Add takes.
const MaxTold = maxNote + 4<<10

// Watcher is a witness of others' logs: of each it keeps the checkpoints that it was told,
// each of which continues the one before. It is safe for concurrent use.
type Watcher struct {
	dir  string
	log  *slog.Logger
	lock *os.File
	logs []*watched
}

// OpenWatcher opens the directory of a witness, or makes it, for the logs with these keys.
// Errors are *sandbox.Error: conflict where another process has it, state_corrupt,
// config_invalid where it cannot be used.
func OpenWatcher(dir string, keys []Key, log *slog.Logger) (*Watcher, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwatchable(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the server's own
	if err != nil {
		return nil, unwatchable(err)
	}
	w := &Watcher{dir: dir, log: log, lock: lock}
	if taken, err := lockFile(lock); err != nil || !taken {
		return nil, errors.Join(&sandbox.Error{
			Code: sandbox.CodeConflict, Message: "another process witnesses in " + dir, Hint: "stop the other server, or give this one a state directory of its own",
		}, err, w.Close())
	}
	for _, key := range keys {
		l, err := openWatched(dir, key)
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w.logs = append(w.logs, l)
	}
	return w, nil
}

// Close lets go of the directory.
func (w *Watcher) Close() error { return w.lock.Close() }

// SizeError says that a checkpoint does not begin where the witness stands: it has seen so
// many entries, and wants a proof from there.
type SizeError struct{ Size int64 }

func (e *SizeError) Error() string {
	return fmt.Sprintf("the witness has seen %d entries of this log and wants a proof from there", e.Size)
}

// ErrUnproven is in the error of a checkpoint whose proof does not hold.
var ErrUnproven = errors.New("the proof does not hold")

// Add takes what a log tells: a checkpoint, a signed note, before which there may be, as in
// C2SP's tlog-witness, a line "old N", the lines of a proof from N entries on, and an empty
// line. What was taken is on the disk. The error is a *SizeError, or a *sandbox.Error:
// request_invalid, not_found for a log that is not watched, forbidden for one that is not
// signed by its key, conflict for one that contradicts what was seen, which is kept as
// evidence, busy, audit_unavailable.
func (w *Watcher) Add(body []byte) error {
	told, err := parseTold(body)
	if err != nil {
		return &sandbox.Error{Code: sandbox.CodeRequestInvalid, Message: "this is no checkpoint: " + err.Error(), Err: err, Hint: "send a signed checkpoint, or \"old N\", a proof, an empty line and the checkpoint"}
	}
	name, _, _ := strings.Cut(told.signed, "\n")
	known := false
	for _, l := range w.logs {
		if l.key.Name() != name {
			continue
		}
		known = true
		c, signed, err := openNote([]byte(told.signed), l.key)
		if err != nil {
			continue
		}
		if told.old > c.Size || c.Size == 0 || strings.Contains(signed, "\n"+endOfNote) { // the last would end a note in a file
			return &sandbox.Error{Code: sandbox.CodeRequestInvalid, Message: "there is nothing to witness in this checkpoint", Hint: "it must have entries, not fewer than before, and no line that is a dot"}
		}
		return l.add(seen{c, signed}, told, w.log)
	}
	if known {
		return &sandbox.Error{Code: sandbox.CodeForbidden, Message: "the checkpoint is not signed by the key that is watched for", Hint: "compare the key in audit.witness_for with what \"pinfold audit key\" prints there"}
	}
	return &sandbox.Error{Code: sandbox.CodeNotFound, Message: "this log is not watched", Hint: "audit.witness_for in this server's configuration lists the logs that it watches"}
}

// told is the body of a request.
type told struct {
	old    int64
	proof  tlog.TreeProof
	signed string
}

func parseTold(body []byte) (told, error) {
	if len(body) > MaxTold {
		return told{}, errors.New("it is too long")
	}
	text := string(body)
	rest, has := strings.CutPrefix(text, "old ")
	if !has {
		return told{signed: text}, nil
	}
	head, signed, whole := strings.Cut(rest, "\n\n")
	if !whole {
		return told{}, errors.New("no empty line ends the proof")
	}
	lines := strings.Split(head, "\n")
	old, err := strconv.ParseInt(lines[0], 10, 64)
	if err != nil || old < 0 || strconv.FormatInt(old, 10) != lines[0] {
		return told{}, errors.New("\"old\" is not followed by a number")
	}
	if len(lines)-1 > maxProof {
		return told{}, errors.New("the proof is too long")
	}
	t := told{old: old, signed: signed}
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			return told{}, errors.New("the proof is not of hashes")
		}
		t.proof = append(t.proof, h)
	}
	return t, nil
}

// seen is a checkpoint and its note.
type seen struct {
	Checkpoint

	signed string
}

// watched is one log.
type watched struct {
	key Key
	dir string

	mu     sync.Mutex
	last   seen
	recent map[int64]seen // by size
	sizes  []int64        // of recent, the oldest first
	budget float64        // checkpoints that may be taken now
	filled time.Time
	warned time.Time
}

// A log tells at most once a second; more often it may for a while.
const (
	takenBurst  = 60
	takenRate   = 2 // per second
	recentNotes = 1024
	warnEvery   = time.Minute
)

func (l *watched) add(c seen, t told, log *slog.Logger) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, known := l.recent[c.Size]
	switch {
	case known && before.Root == c.Root:
		if c.Size < l.last.Size { // somebody sends an old one again
			return &SizeError{l.last.Size}
		}
		return nil
	case known:
		l.contradicted(log, EvidenceFork, before, c)
		return contradicts(c, before)
	case c.Size < l.last.Size:
		l.contradicted(log, EvidenceRolledBack, l.last, c)
		return &SizeError{l.last.Size}
	case t.old != l.last.Size:
		return &SizeError{l.last.Size}
	case l.last.Size > 0 && tlog.CheckTree(t.proof, c.Size, c.Root, l.last.Size, l.last.Root) != nil:
		l.contradicted(log, EvidenceUnproven, l.last, c)
		return contradictsUnproven(c, l.last)
	case !l.mayTake(time.Now()):
		return &sandbox.Error{Code: sandbox.CodeBusy, Message: "this log tells too often", Hint: "tell of the newest checkpoint, at most once a second"}
	}
	if err := l.keep(c); err != nil {
		log.Error("a checkpoint of a watched log was not kept", "log", c.Name, "size", c.Size, "error", err)
		return &sandbox.Error{Code: sandbox.CodeAuditUnavailable, Message: "the checkpoint could not be kept", Err: err, Hint: "make room on the disk of the witness's state directory, or make it writable; its log says why"}
	}
	l.remember(c)
	return nil
}

func contradicts(c, before seen) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeConflict, Message: fmt.Sprintf("this checkpoint of %d entries contradicts one of %d that was seen: the log was forked", c.Size, before.Size),
		Hint: "both are kept as evidence by the witness: \"pinfold audit witnessed\" there lists it",
	}
}

func contradictsUnproven(c, before seen) *sandbox.Error {
	e := contradicts(c, before)
	e.Message = fmt.Sprintf("no proof holds that the %d entries that were seen were continued by these %d: the log was forked, or the proof is wrong", before.Size, c.Size)
	e.Err = ErrUnproven
	return e
}

// mayTake counts a checkpoint that is taken.
func (l *watched) mayTake(now time.Time) bool {
	l.budget = min(takenBurst, l.budget+takenRate*max(0, now.Sub(l.filled).Seconds()))
	l.filled = now
	if l.budget < 1 {
		return false
	}
	l.budget--
	return true
}

func (l *watched) remember(c seen) {
	l.last = c
	if _, known := l.recent[c.Size]; !known {
		l.sizes = append(l.sizes, c.Size)
	}
	l.recent[c.Size] = c
	if len(l.sizes) > recentNotes {
		delete(l.recent, l.sizes[0])
		l.sizes = l.sizes[1:]
	}
}

// contradicted keeps evidence and says so, once for each checkpoint; when there is no more
// room for evidence, once a minute.
func (l *watched) contradicted(log *slog.Logger, kind string, before, c seen) {
	file, isNew, err := keepEvidence(l.dir, kind, before, c)
	if !isNew {
		if time.Since(l.warned) < warnEvery {
			return
		}
		l.warned = time.Now()
	}
	log.Error("A WATCHED AUDIT LOG CONTRADICTS WHAT WAS SEEN OF IT", "log", c.Name, "kind", kind, "seen", before.Size, "told", c.Size, "evidence", file, "error", err)
}
