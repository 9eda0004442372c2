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
	"strconv"
	"time"
)

// What entries say of their texts.
const (
	textsKept   = "kept"
	textsLarge  = "too_large"
	textsFailed = "failed"
)

// When a file of texts is followed by another: what is older than the operator wants is
// removed file by file.
const (
	maxTextsFile = 64 << 20
	maxTextsAge  = 24 * time.Hour
	maxTextLine  = 1 << 30
)

// text is what is kept of one entry: contents by name.
type text struct {
	Index int64             `json:"index"`
	Parts map[string][]byte `json:"parts"`
}

// texts keeps contents. It is of the goroutine that commits.
type texts struct {
	on     bool
	dir    string
	most   int64
	keep   time.Duration
	buffer bytes.Buffer
	file   *os.File // nil: the next one is not there yet
	bytes  int64
	began  time.Time
}

// add prepares the contents of an entry.
func (t *texts) add(index int64, p *pending) string {
	var n int64
	for name, content := range p.event.Parts {
		n += int64(len(name) + len(content))
	}
	if len(p.event.Parts) == 0 {
		return ""
	}
	if n > t.most {
		return textsLarge
	}
	line, err := json.Marshal(text{index, p.event.Parts})
	if err != nil { // bytes only: cannot happen
		return textsFailed
	}
	t.buffer.Write(line)
	t.buffer.WriteByte('\n')
	return textsKept
}

// write puts what was added on the disk, in a file that begins with the entry from where
// there is no other.
func (t *texts) write(from int64, now time.Time) error {
	defer t.buffer.Reset()
	if t.buffer.Len() == 0 {
		return nil
	}
	age := maxTextsAge
	if t.keep > 0 {
		age = min(age, t.keep)
	}
	if t.file != nil && (t.bytes > maxTextsFile || now.Sub(t.began).Abs() > age) {
		t.leave()
	}
	if t.file == nil {
		f, err := os.OpenFile(filepath.Join(t.dir, textsFile(from)), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		t.file, t.bytes, t.began = f, 0, now
		if err := syncDir(t.dir); err != nil {
			return err
		}
	}
	n, err := t.file.WriteAt(t.buffer.Bytes(), t.bytes)
	t.bytes += int64(n)
	if err != nil {
		return err
	}
	return flush(t.file)
}

// leave ends the file that is written to; the next text begins another.
func (t *texts) leave() {
	if t.file != nil {
		_ = t.file.Close() // what is in it was flushed, or is of no entry
	}
	t.file = nil
}

func textsFile(from int64) string { return fmt.Sprintf("%019d", from) }

// textFiles returns where the files of a directory of texts begin, in their order.
func textFiles(dir string) (all []int64, err error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, n := range names {
		if from, err := strconv.ParseInt(n.Name(), 10, 64); err == nil && n.Name() == textsFile(from) {
			all = append(all, from)
		}
	}
	slices.Sort(all)
	return all, err
}

// readTexts calls f for each text of a file whose entry lies before an index.
func readTexts(name string, before int64, f func(t text, line []byte) error) error {
	return eachText(name, func(line []byte) error {
		var t text
		if json.Unmarshal(line, &t) != nil {
			t.Index = -1
		}
		if t.Index >= before {
			return nil
		}
		return f(t, line)
	})
}

// eachText calls f for each line of a file of texts. What a crash has cut off at its end is
// left out.
func eachText(name string, f func(line []byte) error) error {
	file, err := os.Open(name) //nolint:gosec // of the log's directory
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	r := bufio.NewReaderSize(io.LimitReader(file, maxTextLine), 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(line); err != nil {
			return err
		}
	}
}
