//go:build linux

package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// part is a part of a snapshot, after its length.
func part(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

// piece is one of a memory that says that it is there, and so long.
func piece(at uint64, n uint32, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, at), n), b...)
}

// What was not written by this driver is refused, before anything is made so large.
func TestReadSnapshot(t *testing.T) {
	of := shape{memory: 4, cpus: 1}
	here := fingerprint{QEMU: "q", Kernel: "k", Processor: "p", Disk: "d", Memory: 4, CPUs: 1}
	full, last, end := bytes.Repeat([]byte{7}, page), uint64(4<<20-page), piece(0, 0, nil)
	whole := func(pieces ...[]byte) []byte {
		return slices.Concat(part(here.encode()), part([]byte("state")), slices.Concat(pieces...))
	}
	s, err := readSnapshot(t.Context(), bytes.NewReader(whole(piece(page, page, full), piece(last, page, full), end)), here, of)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	memory := make([]byte, 4<<20)
	if _, err := s.memory.ReadAt(memory, 0); err != nil || memory[page-1] != 0 || memory[page] != 7 || memory[2*page] != 0 || memory[4<<20-1] != 7 {
		t.Errorf("control: %v", err)
	}
	for what, content := range map[string][]byte{
		"nothing":             nil,
		"no fingerprint":      part([]byte("{")),
		"an endless one":      part(bytes.Repeat([]byte{' '}, maxPrint+1)),
		"an endless state":    append(part(here.encode()), binary.BigEndian.AppendUint32(nil, maxState+1)...),
		"no memory":           whole(),
		"no end":              whole(piece(0, page, full)),
		"a piece behind it":   whole(piece(4<<20, page, full), end),
		"a piece over it":     whole(piece(last, 2*page, slices.Concat(full, full)), end),
		"a piece far behind":  whole(piece(1<<63, page, full), end),
		"a piece before":      whole(piece(page, page, full), piece(0, page, full), end),
		"a piece on another":  whole(piece(0, page, full), piece(0, page, full), end),
		"a piece of no page":  whole(piece(1, page, full), end),
		"a part of a page":    whole(piece(0, 100, full[:100]), end),
		"a piece too large":   whole(piece(0, window+page, make([]byte, window+page)), end),
		"a piece cut":         whole(piece(0, page, full[1:])),
		"more after the end":  whole(piece(0, page, full), end, []byte{0}),
		"another fingerprint": part([]byte(`[]`)),
	} {
		if s, err := readSnapshot(t.Context(), bytes.NewReader(content), here, of); !errors.Is(err, errForm) {
			s.close()
			t.Errorf("%s: %v", what, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readSnapshot(ended, bytes.NewReader(whole(end)), here, of); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller has gone: %v", err)
	}
	for what, change := range map[string]func(*fingerprint){
		"QEMU": func(f *fingerprint) { f.QEMU += "2" }, "kernel": func(f *fingerprint) { f.Kernel += "2" }, "processor": func(f *fingerprint) { f.Processor += "2" },
		"template": func(f *fingerprint) { f.Disk += "2" }, "size": func(f *fingerprint) { f.CPUs++ },
	} {
		other := here
		change(&other)
		_, err := readSnapshot(t.Context(), bytes.NewReader(whole(end)), other, of)
		if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeConflict || e.Hint == "" || !strings.Contains(e.Message, what) {
			t.Errorf("another %s: %v", what, err)
		}
	}
}
