package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/sandbox"
)

// keeping is how a log that keeps texts is opened.
func keeping(dir string) Options { return Options{Dir: dir, KeepTexts: true, TextBytes: 4096} }

// Texts are kept where the operator says so, and nowhere else; what they are is told by
// their entries.
func TestTextsAreKeptAndProved(t *testing.T) {
	secret := "print('the text of a program')"
	for _, keep := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "audit")
		o := keeping(dir)
		o.KeepTexts = keep
		l := open(t, o)
		e := event(0)
		e.Parts["code"] = []byte(secret)
		if _, err := l.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		large := event(1)
		large.Parts["stdout"] = bytes.Repeat([]byte("x"), 5000)
		if _, err := l.Record(t.Context(), large); err != nil {
			t.Fatal(err)
		}
		record(t, l, 5)
		c := closedLog{dir: dir, public: l.PublicKey()}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		found := false
		err := filepath.Walk(dir, func(name string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			b, err := os.ReadFile(name) //nolint:gosec // of the test
			found = found || bytes.Contains(b, []byte(secret)) || bytes.Contains(b, []byte("cHJpbnQoJ3RoZSB0ZXh0"))
			return err
		})
		if err != nil || found != keep {
			t.Errorf("keep %t: found %t, %v", keep, found, err)
		}
		if !keep {
			continue
		}
		if r := c.report(t, Evidence{}); r.Problem != nil || r.Texts != 6 {
			t.Errorf("%+v", r)
		}
		if parts, err := Texts(dir, 0); err != nil || string(parts["code"]) != secret {
			t.Errorf("%q, %v", parts["code"], err)
		}
		if parts, err := Texts(dir, 1); err != nil || parts != nil {
			t.Errorf("one that is too large: %q, %v", parts, err)
		}
	}
}

// A text that was changed or taken away by hand is found.
func TestChangedTextIsFound(t *testing.T) {
	c := closed(t, 10, keeping(""))
	name := filepath.Join(textsName, textsFile(0))
	all := c.read(t, name)
	lines := bytes.SplitAfter(all, []byte{'\n'})
	changed := append([][]byte{}, lines...)
	changed[4] = bytes.Replace(lines[4], []byte(`"stdout":"`), []byte(`"stdout":"AAAA`), 1)
	for what, b := range map[string][]byte{
		"changed": bytes.Join(changed, nil), "dropped": bytes.Join(append(append([][]byte{}, lines[:4]...), lines[5:]...), nil),
		"broken": bytes.Join(append(append([][]byte{}, lines[:4]...), []byte("{\n")), nil),
	} {
		c.write(t, name, b)
		if p := c.verify(t, Evidence{}); p == nil || p.Kind != ProblemText || p.Index != 4 && what != "broken" {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

// A text can be deleted: nothing that was proved is not proved any more, and nobody can
// find out by guessing what it was.
func TestForgottenTextBreaksNoProof(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	c := closed(t, 10, keeping(dir))
	l := open(t, keeping(dir))
	record(t, l, 3)
	n, err := l.Forget([]int64{2, 3, 11})
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
	if n, err := l.Forget([]int64{2}); err != nil || n != 0 {
		t.Errorf("twice: %d, %v", n, err)
	}
	record(t, l, 2)
	_, r, err := l.Entry(2)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := ParseKey(c.public)
	e, _, err := VerifyReceipt(*r, key)
	if err != nil || e.ID != event(2).Entry.ID {
		t.Errorf("%+v, %v", e, err)
	}
	if err := CheckContent(*r, e, "stdout", []byte("2\n")); code(err) != sandbox.CodeReceiptInvalid {
		t.Errorf("the content can still be guessed: %v", err)
	}
	if err := CheckContent(*c.receipts[2], e, "stdout", []byte("2\n")); err != nil {
		t.Errorf("who kept the receipt can check no more: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := c.report(t, Evidence{Receipts: []sandbox.Receipt{*c.receipts[2], *c.receipts[9]}}); got.Problem != nil || got.Forgotten != 3 || got.Texts != 12 {
		t.Errorf("%+v %+v", got, got.Problem)
	}
	if strings.Contains(string(c.read(t, entriesName)), c.receipts[2].Salt) {
		t.Error("the salt is still there")
	}
	for _, index := range []int64{2, 11} {
		if parts, err := Texts(dir, index); err != nil || parts != nil {
			t.Errorf("%d: %v, %v", index, parts, err)
		}
	}
}

// Texts go when they are as old as the operator wants.
func TestTextsExpire(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	c := closed(t, 5, keeping(dir))
	o := keeping(dir)
	o.TextsFor = time.Hour
	l := open(t, o)
	record(t, l, 5)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, textsName, textsFile(0)), old, old); err != nil {
		t.Fatal(err)
	}
	l.expire()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, textsName, textsFile(0))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("they are there: %v", err)
	}
	if r := c.report(t, Evidence{}); r.Problem != nil || r.Forgotten != 5 || r.Texts != 5 {
		t.Errorf("%+v %+v", r, r.Problem)
	}
}

// What is kept of an entry is given back only as it was recorded, to who wants to run it
// again: not where one byte of it is another or a part of it is gone.
func TestRecordedTextsAreTheRecordedOnes(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"as it was": func(b []byte) []byte { return b },
		"changed":   func(b []byte) []byte { return bytes.Replace(b, []byte(`"code":"cHJpbn`), []byte(`"code":"cXJpbn`), 1) },
		"gone":      func(b []byte) []byte { return bytes.Replace(b, []byte(`"code":`), []byte(`"node":`), 1) },
	} {
		dir := filepath.Join(t.TempDir(), "audit")
		l := open(t, keeping(dir))
		e := event(0)
		e.Parts["code"] = []byte("print(1)")
		r, err := l.Record(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		record(t, l, 3)
		file := filepath.Join(dir, textsName, textsFile(0))
		b, err := os.ReadFile(file) //nolint:gosec // of the test
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, change(b), 0o600); err != nil {
			t.Fatal(err)
		}
		entry, parts, err := l.Recorded(r.Index)
		if name == "as it was" && (err != nil || string(parts["code"]) != "print(1)" || entry.ID != e.Entry.ID) {
			t.Errorf("%s: %q, %v", name, parts["code"], err)
		}
		if name != "as it was" && (code(err) != sandbox.CodeStateCorrupt || parts != nil) {
			t.Errorf("%s: %q, %v", name, parts["code"], err)
		}
		if _, err := l.Forget([]int64{r.Index}); err != nil {
			t.Fatal(err)
		}
		if _, parts, err := l.Recorded(r.Index); err != nil || parts != nil {
			t.Errorf("%s, forgotten: %q, %v", name, parts, err)
		}
		if _, _, err := l.Recorded(99); code(err) != sandbox.CodeNotFound {
			t.Errorf("one that is not there: %v", err)
		}
	}
}
