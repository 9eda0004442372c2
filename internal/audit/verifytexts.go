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

	"pinfold/sandbox"
)

// textWalk reads the texts of a log beside its entries, in their order.
type textWalk struct {
	dir   string
	files []int64 // where those begin that were not read yet
	file  *os.File
	lines *bufio.Reader
	next  *text // nil: not read yet
}

func (w *textWalk) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
}

// of returns what is kept of an entry, nil where nothing is. Indexes go up.
func (w *textWalk) of(index int64) (*text, error) {
	for {
		if w.next == nil {
			if more, err := w.read(); err != nil || !more {
				return nil, err
			}
		}
		switch {
		case w.next.Index > index && len(w.files) > 0 && w.files[0] <= index: // of no entry: it was written again
			w.close()
			w.file, w.next = nil, nil
		case w.next.Index > index:
			return nil, nil
		case w.next.Index == index && (len(w.files) == 0 || w.files[0] > index):
			return w.next, nil
		default:
			w.next = nil
		}
	}
}

// read reads the next text.
func (w *textWalk) read() (more bool, err error) {
	for {
		if w.file == nil {
			if len(w.files) == 0 {
				return false, nil
			}
			w.file, err = os.Open(filepath.Join(w.dir, textsFile(w.files[0]))) //nolint:gosec // of the log's directory
			w.files = w.files[1:]
			if errors.Is(err, os.ErrNotExist) { // deleted meanwhile
				continue
			}
			if err != nil {
				return false, err
			}
			w.lines = bufio.NewReaderSize(io.LimitReader(w.file, maxTextLine), 1<<20)
		}
		line, err := w.lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what a crash has cut off is of no entry
			_ = w.file.Close()
			w.file = nil
			continue
		}
		if err != nil {
			return false, err
		}
		w.next = &text{}
		if err := json.Unmarshal(line, w.next); err != nil {
			return false, fmt.Errorf("a text in %s cannot be read", filepath.Base(w.file.Name()))
		}
		return true, nil
	}
}

// textOf compares what is kept of an entry with its digests.
func (v *verifier) textOf(index int64, leaf []byte, salt string) (*Problem, error) {
	if len(v.texts.files) == 0 && v.texts.file == nil && !hasTexts(leaf) {
		return nil, nil
	}
	var e sandbox.AuditEntry
	if err := json.Unmarshal(leaf, &e); err != nil {
		return &Problem{ProblemChanged, index, fmt.Sprintf("entry %d is not one", index)}, nil //nolint:nilerr // it is the problem
	}
	kept, err := v.texts.of(index)
	switch {
	case err != nil:
		return &Problem{ProblemText, index, fmt.Sprintf("at entry %d: %s", index, err)}, nil
	case salt == noSalt:
		return nil, nil // nobody can tell any more
	case kept == nil && e.Texts == textsKept:
		return &Problem{ProblemText, index, fmt.Sprintf("the text of entry %d is not there, and was not deleted as texts are", index)}, nil
	case kept == nil:
		return nil, nil
	}
	v.report.Texts++
	for name, said := range e.Digests {
		if digest(salt, name, kept.Parts[name]) != said {
			return &Problem{ProblemText, index, fmt.Sprintf("the text of entry %d was changed: %s", index, name)}, nil
		}
	}
	return nil, nil
}

// hasTexts says whether an entry says that its texts are kept. It is quick: most do not.
func hasTexts(leaf []byte) bool { return bytes.Contains(leaf, []byte(`"texts":"`+textsKept+`"`)) }
