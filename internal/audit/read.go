package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pinfold/sandbox"
)

// rawEntry is one line of the file of entries. It is good until the next one is read.
type rawEntry struct {
	index, offset int64
	leaf          []byte
	salt          string
}

// errStop ends a scan without an error.
var errStop = errors.New("stop")

// scan reads the entries from an index on, as far as they are on the disk.
func (l *Log) scan(from int64, f func(e rawEntry) error) error {
	l.mu.RLock()
	end := l.head
	block := from / blockEntries
	var offset int64
	if block < int64(len(l.offsets)) {
		offset = l.offsets[block]
	}
	l.mu.RUnlock()
	if from >= end.size {
		return nil
	}
	return scanFile(io.NewSectionReader(l.reader, offset, end.bytes-offset), offset, block*blockEntries, func(e rawEntry) error {
		if e.index < from {
			return nil
		}
		return f(e)
	})
}

// scanFile reads lines, the first of which is an entry of an index. A last line without
// its end is not one.
func scanFile(r io.Reader, offset, index int64, f func(e rawEntry) error) error {
	lines := bufio.NewReaderSize(r, 1<<18)
	for ; ; index++ {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		leaf, salt, err := splitLine(line[:len(line)-1])
		if err != nil {
			return err
		}
		if err := f(rawEntry{index, offset, leaf, salt}); errors.Is(err, errStop) {
			return nil
		} else if err != nil {
			return err
		}
		offset += int64(len(line))
	}
}

// Filter selects entries. The zero value means all; an empty list all values.
type Filter struct {
	Tenant, Key string
	IDs         []string // of runs, processes and sandboxes; a process also by its sandbox's
	Kinds       []sandbox.AuditKind
	Drivers     []string
	Levels      []string // of isolation
	Statuses    []sandbox.Status
	// Secrets are names: what put one into a request, perhaps (where an entry had no room
	// for all), and what set or removed it.
	Secrets []string
	// Findings and Rules are ids of rules, of the scan's and of the policy's, perhaps, as
	// with secrets; Severities the highest of what was found; By the keys that decided.
	Findings, Rules, By []string
	Severities          []sandbox.Severity
	Since, Before       time.Time // claimed times
}

// Empty says whether a filter selects all.
func (f Filter) Empty() bool {
	return f.Tenant == "" && f.Key == "" && f.Since.IsZero() && f.Before.IsZero() &&
		len(f.IDs)+len(f.Kinds)+len(f.Drivers)+len(f.Levels)+len(f.Statuses)+len(f.Secrets)+len(f.Findings)+len(f.Rules)+len(f.By)+len(f.Severities) == 0
}

// Matches says whether an entry is selected.
func (f Filter) Matches(e sandbox.AuditEntry) bool {
	return (f.Tenant == "" || f.Tenant == e.Tenant) && (f.Key == "" || f.Key == e.Key) &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, e.ID) || e.Sandbox != "" && slices.Contains(f.IDs, e.Sandbox)) &&
		anyOf(f.Kinds, e.Kind) && anyOf(f.Statuses, e.Status) && f.matchesWall(e) &&
		aboutSecrets(f.Secrets, e) && f.matchesDecision(e) &&
		(f.Since.IsZero() || !e.Time.Before(f.Since)) && (f.Before.IsZero() || e.Time.Before(f.Before))
}

// matchesWall is the part of Matches about what it ran in.
func (f Filter) matchesWall(e sandbox.AuditEntry) bool {
	var wall sandbox.AuditIsolation
	if e.Isolation != nil {
		wall = *e.Isolation
	}
	return anyOf(f.Drivers, wall.Driver) && anyOf(f.Levels, wall.Level)
}

// matchesDecision is the part of Matches about what was found and decided.
func (f Filter) matchesDecision(e sandbox.AuditEntry) bool {
	var ruled sandbox.AuditPolicy
	if e.Policy != nil {
		ruled = *e.Policy
	}
	return anyNamed(f.Findings, e.Findings) && anyOf(f.Severities, e.Severity) && anyNamed(f.Rules, ruled.Rules) && anyOf(f.By, ruled.By)
}

// aboutSecrets says whether an entry is about one of these secrets; an empty list is all.
func aboutSecrets(names []string, e sandbox.AuditEntry) bool {
	switch {
	case len(names) == 0:
		return true
	case e.Kind == sandbox.AuditSecretSet || e.Kind == sandbox.AuditSecretRemoved:
		return slices.Contains(names, e.ID)
	case e.Network == nil:
		return false
	}
	return anyNamed(names, e.Network.Secrets)
}

// anyNamed says whether one of these names is in an entry's list, or perhaps, where it had
// no room for all; no names are all lists.
func anyNamed(names, list []string) bool {
	return len(names) == 0 || slices.ContainsFunc(list, func(has string) bool { return has == sandbox.AuditMore || slices.Contains(names, has) })
}

func anyOf[T comparable](wanted []T, is T) bool {
	return len(wanted) == 0 || slices.Contains(wanted, is)
}

// maxScanned bounds how many entries are looked at for one page.
const maxScanned = 50_000

// List returns the entries from an index on that are selected, at most limit, and where
// to go on: -1 at the end. A page may have fewer with more behind it.
func (l *Log) List(f Filter, from int64, limit int) (page []sandbox.AuditEntry, next int64, err error) {
	next = -1
	err = l.scan(from, func(e rawEntry) error {
		if len(page) == limit || e.index-from == maxScanned {
			next = e.index
			return errStop
		}
		var entry sandbox.AuditEntry
		if err := json.Unmarshal(e.leaf, &entry); err != nil {
			return err
		}
		if f.Matches(entry) {
			page = append(page, entry)
		}
		return nil
	})
	if err != nil {
		return nil, -1, corrupt(l.o.Dir, err.Error(), err)
	}
	return page, next, nil
}

// Entry returns one entry with a receipt as of now, as an error of code not_found where
// there is none.
func (l *Log) Entry(index int64) (entry sandbox.AuditEntry, r *sandbox.Receipt, err error) {
	l.mu.RLock()
	h := l.head
	l.mu.RUnlock()
	entry, leaf, salt, err := l.find(index)
	if err != nil {
		return entry, nil, err
	}
	r, err = l.receipt(index, leaf, salt, h)
	return entry, r, err
}

// find reads one entry.
func (l *Log) find(index int64) (entry sandbox.AuditEntry, leaf []byte, salt string, err error) {
	if index >= 0 {
		err = l.scan(index, func(e rawEntry) error {
			leaf, salt = slices.Clone(e.leaf), e.salt
			return errStop
		})
	}
	switch {
	case err != nil:
		return entry, nil, "", corrupt(l.o.Dir, err.Error(), err)
	case leaf == nil:
		return entry, nil, "", NoEntry()
	}
	if err := json.Unmarshal(leaf, &entry); err != nil {
		return entry, nil, "", corrupt(l.o.Dir, err.Error(), err)
	}
	return entry, leaf, salt, nil
}

// Recorded returns an entry with the contents that are kept of it. One that is not what the
// entry has the digest of is an error of code state_corrupt.
func (l *Log) Recorded(index int64) (sandbox.AuditEntry, map[string][]byte, error) {
	entry, _, salt, err := l.find(index)
	if err != nil || salt == noSalt {
		return entry, nil, err
	}
	parts, err := Texts(l.o.Dir, index)
	if err != nil || parts == nil {
		return entry, nil, err
	}
	for name, recorded := range entry.Digests {
		if content, kept := parts[name]; !kept || digest(salt, name, content) != recorded {
			return entry, nil, corrupt(l.o.Dir, fmt.Sprintf("the text \"%s\" of entry %d is not what was recorded", sandbox.SafeText(name, 40), index), nil)
		}
	}
	return entry, parts, nil
}

// NoEntry is the same for what does not exist and for what is another tenant's.
func NoEntry() *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such entry", Hint: "pinfold audit list shows those that there are"}
}

// Exists says whether a state directory has an audit log.
func Exists(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, entriesName))
	return err == nil
}

// Each reads the entries of a log that another process may be writing to, in their order,
// and calls f with each and its leaf. It checks nothing but their form: see Verify.
func Each(dir string, f func(e sandbox.AuditEntry, leaf []byte, salt string) error) error {
	file, err := os.Open(filepath.Join(dir, entriesName))
	if err != nil {
		return unusable(err)
	}
	defer file.Close() //nolint:errcheck // only read
	var stopped error
	err = scanFile(file, 0, 0, func(raw rawEntry) error {
		var e sandbox.AuditEntry
		if err := json.Unmarshal(raw.leaf, &e); err != nil {
			return err
		}
		stopped = f(e, raw.leaf, raw.salt)
		return stopped
	})
	if err != nil && stopped == nil {
		return corrupt(dir, err.Error(), err)
	}
	return err
}

// Texts returns the contents that are kept of an entry, by name; nil where none are.
func Texts(dir string, index int64) (parts map[string][]byte, err error) {
	dir = filepath.Join(dir, textsName)
	all, err := textFiles(dir)
	if err != nil {
		return nil, unusable(err)
	}
	i, exact := slices.BinarySearch(all, index)
	if !exact {
		i--
	}
	if i < 0 {
		return nil, nil
	}
	err = eachText(filepath.Join(dir, textsFile(all[i])), func(line []byte) error {
		var t text
		if bytes.HasPrefix(line, []byte(fmt.Sprintf(`{"index":%d,`, index))) && json.Unmarshal(line, &t) == nil {
			parts = t.Parts
		}
		return nil
	})
	if err != nil {
		return nil, unusable(err)
	}
	return parts, nil
}

// Lookup is Log.Entry for a log that another process may be writing to. The receipt is as
// of the last checkpoint that is written down, and none where that is older than the entry.
func Lookup(dir string, index int64) (r sandbox.AuditRecord, err error) {
	var leaf []byte
	var salt string
	err = Each(dir, func(e sandbox.AuditEntry, b []byte, s string) error {
		if e.Index != index {
			return nil
		}
		r.Entry, leaf, salt = e, slices.Clone(b), s
		return errStop
	})
	if err != nil {
		return r, err
	}
	if leaf == nil {
		return r, NoEntry()
	}
	var h head
	err = eachCheckpoint(filepath.Join(dir, checkpointsName), func(signed []byte) error {
		h.signed = string(signed)
		return nil
	})
	if err != nil || h.signed == "" {
		return r, err
	}
	b, err := readSmall(KeyFile(dir), maxKeyFile)
	if err != nil {
		return r, unusable(err)
	}
	key, err := ParseKey(string(b))
	if err != nil {
		return r, err
	}
	c, err := openCheckpoint([]byte(h.signed), key)
	if err != nil {
		return r, corrupt(dir, "its last checkpoint is not signed by its key", err)
	}
	if h.size = c.Size; h.size <= index {
		return r, nil
	}
	f, err := os.Open(filepath.Join(dir, hashesName)) //nolint:gosec // of the log's directory
	if err != nil {
		return r, unusable(err)
	}
	l := &Log{hashes: f}
	r.Receipt, err = l.receipt(index, leaf, salt, h)
	return r, errors.Join(err, f.Close())
}
