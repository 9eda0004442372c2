package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"pinfold/sandbox"
)

// Forget deletes the texts and the salt of entries. The entries stay, with digests of
// what nobody can find out any more, and everything that was proved stays proved. It says
// how many had either.
func (l *Log) Forget(indexes []int64) (forgotten int, err error) {
	if len(indexes) == 0 {
		return 0, nil
	}
	indexes = slices.Sorted(slices.Values(indexes))
	done := l.commitOne(&pending{do: func() error {
		forgotten, err = l.forget(func(index int64) bool { _, found := slices.BinarySearch(indexes, index); return found }, indexes[0], indexes[len(indexes)-1]+1)
		return err
	}})
	return forgotten, cmp.Or(err, done)
}

// forget deletes texts and salts of the entries from..to that are gone.
func (l *Log) forget(gone func(index int64) bool, from, to int64) (int, error) {
	l.texts.leave()
	all, err := textFiles(l.texts.dir)
	if err != nil {
		return 0, unusable(err)
	}
	n, err := l.eraseSalts(gone, from, to) // first: a text that is missing has no salt
	if err != nil {
		return 0, err
	}
	for i, begins := range all {
		before := l.edge.size
		if i+1 < len(all) {
			before = all[i+1]
		}
		if begins >= to || before <= from {
			continue
		}
		if err := rewriteTexts(filepath.Join(l.texts.dir, textsFile(begins)), before, gone); err != nil {
			return 0, unusable(err)
		}
	}
	return n, nil
}

// rewriteTexts takes texts out of a file.
func rewriteTexts(name string, before int64, gone func(index int64) bool) error {
	var kept bytes.Buffer
	some := false
	err := readTexts(name, before, func(t text, line []byte) error {
		if t.Index >= 0 && !gone(t.Index) {
			kept.Write(line)
		} else {
			some = true
		}
		return nil
	})
	switch {
	case err != nil || !some:
		return err
	case kept.Len() == 0:
		return os.Remove(name)
	}
	return writeWhole(name, kept.String(), 0o600)
}

// eraseSalts puts dashes in the place of salts.
func (l *Log) eraseSalts(gone func(index int64) bool, from, to int64) (n int, err error) {
	err = l.scan(from, func(e rawEntry) error {
		if e.index >= to {
			return errStop
		}
		if e.salt == noSalt || !gone(e.index) {
			return nil
		}
		n++
		_, err := l.entries.WriteAt([]byte(noSalt), e.offset+int64(len(e.leaf))+1)
		return err
	})
	if err == nil {
		err = flush(l.entries)
	}
	if err != nil {
		return n, unusable(err)
	}
	return n, nil
}

// expire deletes texts that are older than the operator wants, with the salts of their
// entries.
func (l *Log) expire() {
	if l.o.TextsFor <= 0 {
		return
	}
	err := l.commitOne(&pending{do: l.expireTexts})
	if err != nil && sandbox.AsError(err).Code != sandbox.CodeAuditUnavailable {
		l.o.Log.Error("old texts beside the audit log were not deleted", "error", err)
	}
}

func (l *Log) expireTexts() error {
	all, err := textFiles(l.texts.dir)
	if err != nil {
		return err
	}
	for i, begins := range all {
		name := filepath.Join(l.texts.dir, textsFile(begins))
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if l.o.Now().Sub(info.ModTime()) < l.o.TextsFor {
			continue
		}
		to := l.edge.size
		if i+1 < len(all) {
			to = all[i+1]
		}
		if i+1 == len(all) {
			l.texts.leave()
		}
		if _, err := l.eraseSalts(func(int64) bool { return true }, begins, to); err != nil {
			return err
		}
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// ForgetIn is Forget for the entries that are selected in a log that nobody has open.
func ForgetIn(dir string, f Filter) (int, error) {
	l, err := Open(Options{Dir: dir})
	if err != nil {
		return 0, err
	}
	var chosen []int64
	err = l.scan(0, func(e rawEntry) error {
		var entry sandbox.AuditEntry
		if err := json.Unmarshal(e.leaf, &entry); err != nil {
			return err
		}
		if f.Matches(entry) {
			chosen = append(chosen, e.index)
		}
		return nil
	})
	n := 0
	if err == nil {
		n, err = l.Forget(chosen)
	}
	return n, errors.Join(err, l.Close())
}
