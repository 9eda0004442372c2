package filetree

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// sample has one of everything.
func sample(t testing.TB) []byte {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, step := range []func() error{
		func() error { return w.Entry(Entry{Kind: Place, Name: "home"}) },
		func() error {
			return w.Entry(Entry{Kind: File, Name: "a\nb", Mode: 0o640, MtimeNS: -5, Size: 10, Number: 1})
		},
		func() error { return w.Hole(3) },
		func() error { return w.Data([]byte("content")) },
		func() error { return w.Entry(Entry{Kind: Dir, Name: "\xff"}) },
		func() error { return w.Entry(Entry{Kind: Link, Name: "-n", Number: 1, Last: true}) },
		func() error { return w.Entry(Entry{Kind: Symlink, Name: "s", MtimeNS: 7, Target: "../../etc/shadow"}) },
		func() error { return w.Entry(Entry{Kind: Up, Mode: 0o1777, MtimeNS: 9}) },
		func() error { return w.Entry(Entry{Kind: Up, Mode: 0o700}) },
		func() error { return w.Entry(Entry{Kind: Place, Name: "/tmp"}) },
		func() error { return w.Entry(Entry{Kind: Up}) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	w.LeaveOut()
	s, err := w.End()
	if want := (Summary{Files: 1, Dirs: 1, Symlinks: 1, Names: 1, Bytes: 7, Left: 1}); err != nil || s != want {
		t.Fatalf("%+v, %v", s, err)
	}
	return b.Bytes()
}

// read reads all of a stream.
func read(b []byte) (all []Entry, content string, err error) {
	r := NewReader(bytes.NewReader(b))
	for {
		e, err := r.Next()
		if err != nil {
			return all, content, err
		}
		if all = append(all, e); e.Kind == End {
			return all, content, nil
		}
		for e.Kind == File {
			gap, piece, err := r.Content()
			if err != nil {
				return all, content, err
			}
			if gap == 0 && piece == nil {
				break
			}
			content += strings.Repeat("_", int(gap)) + string(piece)
		}
	}
}

func TestComesBack(t *testing.T) {
	all, content, err := read(sample(t))
	want := []Entry{
		{Kind: Place, Name: "home"},
		{Kind: File, Name: "a\nb", Mode: 0o640, MtimeNS: -5, Size: 10, Number: 1},
		{Kind: Dir, Name: "\xff"},
		{Kind: Link, Name: "-n", Number: 1, Last: true},
		{Kind: Symlink, Name: "s", MtimeNS: 7, Target: "../../etc/shadow"},
		{Kind: Up, Mode: 0o1777, MtimeNS: 9},
		{Kind: Up, Mode: 0o700},
		{Kind: Place, Name: "/tmp"},
		{Kind: Up},
		{Kind: End},
	}
	if err != nil || content != "___content" || !reflect.DeepEqual(all, want) {
		t.Errorf("%+v, %q, %v", all, content, err)
	}
}

// Whatever is cut off, or changed, is refused or another tree, and never a name that leads
// elsewhere.
func TestHostileStreams(t *testing.T) {
	whole := sample(t)
	for n := range whole {
		if _, _, err := read(whole[:n]); !errors.Is(err, errBroken) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
	}
	raw := func(parts ...string) []byte { return []byte(head + strings.Join(parts, "")) }
	place, up := "\x02\x04home", "\x04\x00\x00"
	for what, b := range map[string][]byte{
		"another head":              []byte("pinfold files 2\n\x01"),
		"a name with a slash":       raw(place, "\x03\x03a/b", up, up, "\x01"),
		"a name that leads up":      raw(place, "\x03\x02..", up, up, "\x01"),
		"a name that stays":         raw(place, "\x03\x01.", up, up, "\x01"),
		"no name":                   raw(place, "\x03\x00", up, up, "\x01"),
		"a name with a NUL":         raw(place, "\x03\x02a\x00", up, up, "\x01"),
		"a name that is too long":   raw(place, "\x03\x80\x02"+strings.Repeat("a", 256), up, up, "\x01"),
		"an entry outside":          raw("\x03\x01a", up, "\x01"),
		"a place in another":        raw(place, place, up, up, "\x01"),
		"an end inside":             raw(place, "\x01"),
		"up out of nothing":         raw(up, "\x01"),
		"a file without content":    raw(place, "\x05\x01a\x00\x00\x05\x00", up, "\x01"),
		"a file with more":          raw(place, "\x05\x01a\x00\x00\x01\x00", "\x08\x02xx", up, "\x01"),
		"a hole that is too long":   raw(place, "\x05\x01a\x00\x00\x01\x00", "\x09\x02", up, "\x01"),
		"an empty hole":             raw(place, "\x05\x01a\x00\x00\x01\x00", "\x09\x00", up, "\x01"),
		"a piece that is too large": raw(place, "\x05\x01a\x00\x00\xff\xff\xff\x7f\x00", "\x08\x81\x80\x80\x01"),
		"a negative size":           raw(place, "\x05\x01a\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", up, "\x01"),
		"a number that is skipped":  raw(place, "\x05\x01a\x00\x00\x00\x02", up, "\x01"),
		"a name of nothing":         raw(place, "\x06\x01a\x01\x01", up, "\x01"),
		"a link to nothing":         raw(place, "\x07\x01a\x00\x00", up, "\x01"),
		"a mode that cannot be":     raw(place, "\x04\x80\x40\x00", "\x01"),
		"an unknown entry":          raw(place, "\x0a", up, "\x01"),
	} {
		if _, _, err := read(b); err == nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := read(raw(place, "\x03\x01a", up, up, "\x01")); err != nil { // the control
		t.Errorf("a name like others: %v", err)
	}
}

// The writer refuses what the reader would.
func TestWriterRefuses(t *testing.T) {
	for what, e := range map[string]Entry{
		"a slash": {Kind: Dir, Name: "a/b"}, "up": {Kind: Symlink, Name: "..", Target: "x"}, "a size": {Kind: File, Name: "a", Size: -1},
		"no target": {Kind: Symlink, Name: "a"}, "a mode": {Kind: File, Name: "a", Mode: 1 << 20},
	} {
		w := NewWriter(io.Discard)
		if err := w.Entry(Entry{Kind: Place, Name: "home"}); err != nil {
			t.Fatal(err)
		}
		if w.Entry(e) == nil {
			t.Errorf("%s was written", what)
		}
		if _, err := w.End(); err == nil {
			t.Errorf("%s: it can be ended", what)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(sample(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _, err := read(b)
		if err != nil {
			return
		}
		for _, e := range all {
			if e.Kind != Place && (e.Name == ".." || strings.ContainsAny(e.Name, "/\x00")) {
				t.Fatalf("%q", e.Name)
			}
		}
	})
}
