package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pinfold/sandbox"
)

const many = 1000

// Every byte of a log of 1,000 entries, changed, makes its line another than the tree has:
// what Verify asks of each line, here of each line with each of its bytes changed. A line
// that is as it was must not be found.
func TestEveryFlippedByteIsFound(t *testing.T) {
	c := closed(t, many, Options{})
	hashes := c.read(t, hashesName)
	var before edge
	for index, line := range c.lines {
		from := tlog.StoredHashCount(int64(index)) * tlog.HashSize
		judge := func(b []byte) (string, edge) {
			v := &verifier{edge: before}
			_, _, problem := v.line(int64(index), b, bytes.NewReader(hashes[from:]))
			return problem, v.edge
		}
		problem, after := judge(line)
		if problem != "" {
			t.Fatalf("entry %d is as it was: %s", index, problem)
		}
		flipped := bytes.Clone(line)
		for i := range line[:len(line)-1] { // its end is TestChangesAreNamed's
			flipped[i] ^= 1 << (i % 8)
			if problem, _ := judge(flipped); problem == "" {
				t.Fatalf("entry %d, byte %d changed from %q to %q: not found", index, i, line[i], flipped[i])
			}
			flipped[i] = line[i]
		}
		before = after
	}
}

// Verify names the entry in which a byte was changed, also where that is the end of its
// line or its salt, and says when it is the tree that was changed.
func TestChangesAreNamed(t *testing.T) {
	c := closed(t, many, Options{})
	if p := c.verify(t, Evidence{}); p != nil {
		t.Fatalf("nothing was changed: %+v", p)
	}
	offset := 0
	for index, line := range c.lines {
		for _, at := range []int{0, len(line) / 2, len(line) - 2, len(line) - 1} {
			if index%25 != 0 && at != index%len(line) { // all of them take a minute
				continue
			}
			b := bytes.Clone(c.entries)
			b[offset+at] ^= 1
			c.write(t, entriesName, b)
			wants(t, c.verify(t, Evidence{}), ProblemChanged, int64(index))
		}
		offset += len(line)
	}
	c.write(t, entriesName, c.entries)
	hashes := c.read(t, hashesName)
	for n := int64(0); n < many; n += 97 {
		b := bytes.Clone(hashes)
		b[tlog.StoredHashIndex(0, n)*tlog.HashSize+5] ^= 1
		c.write(t, hashesName, b)
		wants(t, c.verify(t, Evidence{}), ProblemTree, n)
	}
}

// Each entry dropped, and each two swapped, is found and named.
func TestDroppedAndMovedEntriesAreNamed(t *testing.T) {
	c := closed(t, many, Options{})
	for i := range many {
		rest := bytes.Join(append(append([][]byte{}, c.lines[:i]...), c.lines[i+1:]...), nil)
		c.write(t, entriesName, rest)
		kind := ProblemDropped
		if i == many-1 {
			kind = ProblemCutOff
		}
		wants(t, c.verify(t, Evidence{}), kind, int64(i))
		if i+1 < many {
			swapped := append([][]byte{}, c.lines...)
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			c.write(t, entriesName, bytes.Join(swapped, nil))
			wants(t, c.verify(t, Evidence{}), ProblemMoved, int64(i))
		}
	}
}

// rewritten makes the entries and the tree of a log anew from some of its entries, as one
// who has the disk and not the key could.
func (c closedLog) rewritten(t *testing.T, leaves [][]byte) {
	t.Helper()
	var e edge
	var entries, hashes []byte
	for _, leaf := range leaves {
		entries = appendLine(entries, leaf, noSalt)
		for _, h := range e.add(tlog.RecordHash(leaf)) {
			hashes = append(hashes, h[:]...)
		}
	}
	c.write(t, entriesName, entries)
	c.write(t, hashesName, hashes)
}

// Who rewrites the tree with the entries is found by the checkpoints, and who takes those
// back as well by what others have kept of them: a witness's file, a client's receipt.
func TestRewritingIsFoundByWhatOthersKeep(t *testing.T) {
	witness := filepath.Join(t.TempDir(), "witness")
	dir := filepath.Join(t.TempDir(), "audit")
	first := closed(t, 20, Options{Dir: dir, Witnesses: []Witness{NewWitness(witness)}})
	old := first.read(t, checkpointsName)
	l := open(t, Options{Dir: dir, Witnesses: []Witness{NewWitness(witness)}})
	receipts := record(t, l, 20)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var leaves [][]byte
	err := Each(dir, func(_ sandbox.AuditEntry, leaf []byte, _ string) error {
		leaves = append(leaves, bytes.Clone(leaf))
		return nil
	})
	if err != nil || len(leaves) != 40 {
		t.Fatal(len(leaves), err)
	}
	changed := append([][]byte{}, leaves...)
	changed[30] = bytes.Replace(leaves[30], []byte(`"status":"succeeded"`), []byte(`"status":"failed"`), 1)
	first.rewritten(t, changed)
	wants(t, first.verify(t, Evidence{}), ProblemChanged, 20) // somewhere between both checkpoints

	first.rewritten(t, leaves[:20])
	wants(t, first.verify(t, Evidence{}), ProblemCutOff, 20)
	first.write(t, checkpointsName, old)
	if p := first.verify(t, Evidence{}); p != nil { // the control: nothing here knows better
		t.Fatalf("an old state of the whole directory: %+v", p)
	}
	wants(t, first.verify(t, Evidence{Checkpoints: []string{witness}}), ProblemCutOff, 20)
	wants(t, first.verify(t, Evidence{Receipts: []sandbox.Receipt{*receipts[3]}}), ProblemCutOff, 20)

	// It goes on from the old state: the same sizes come again, with other roots.
	l = open(t, Options{Dir: dir})
	record(t, l, 20)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if p := first.verify(t, Evidence{}); p != nil {
		t.Fatalf("the new branch alone: %+v", p)
	}
	wants(t, first.verify(t, Evidence{Checkpoints: []string{witness}}), ProblemCheckpoint, 40)
	if p := first.verify(t, Evidence{Receipts: []sandbox.Receipt{*receipts[3]}}); p == nil {
		t.Error("a receipt of the old branch was not missed")
	}
}

// A log that was changed, cut off or has lost its key is not opened again.
func TestDamagedLogIsNotOpened(t *testing.T) {
	for name, damage := range map[string]func(c closedLog){
		"changed": func(c closedLog) {
			b := bytes.Clone(c.entries)
			b[len(b)/2] ^= 1
			c.write(t, entriesName, b)
		},
		"cut off":     func(c closedLog) { c.write(t, entriesName, bytes.Join(c.lines[:9], nil)) },
		"gone":        func(c closedLog) { c.write(t, entriesName, nil) },
		"key gone":    func(c closedLog) { _ = os.Remove(filepath.Join(c.dir, keyName)) },
		"another key": func(c closedLog) { c.write(t, publicName, []byte(closed(t, 1, Options{}).public)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := closed(t, 10, Options{})
			damage(c)
			l, err := Open(Options{Dir: c.dir})
			if code(err) != sandbox.CodeStateCorrupt {
				t.Errorf("%v, %v", l, err)
			}
		})
	}
}

// The hashes are made again where some are missing or wrong: entries and checkpoints say
// what they are.
func TestTreeIsMadeAgain(t *testing.T) {
	c := closed(t, 100, Options{})
	want := c.read(t, hashesName)
	half := bytes.Clone(want)
	half[1000] ^= 1
	for name, has := range map[string][]byte{"none": nil, "some": want[:1001], "wrong": half, "more": append(bytes.Clone(want), 1, 2, 3)} {
		c.write(t, hashesName, has)
		l := open(t, Options{Dir: c.dir})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := c.read(t, hashesName); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, not %d", name, len(got), len(want))
		}
	}
}

// The edge is the tree of package tlog.
func TestEdgeIsTheTree(t *testing.T) {
	var e edge
	var stored []byte
	for n := range int64(300) {
		h := tlog.RecordHash([]byte{byte(n), byte(n >> 8)})
		want, err := tlog.StoredHashesForRecordHash(n, h, storedHashes(bytes.NewReader(stored)))
		if err != nil {
			t.Fatal(err)
		}
		got := e.add(h)
		if len(got) != len(want) {
			t.Fatalf("%d: %d hashes, not %d", n, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%d: hash %d differs", n, i)
			}
			stored = append(stored, got[i][:]...)
		}
		root, err := tlog.TreeHash(n+1, storedHashes(bytes.NewReader(stored)))
		if err != nil || root != e.root() {
			t.Fatalf("%d: another root: %v", n, err)
		}
		if got := entriesOf(int64(len(stored)) / tlog.HashSize); got != n+1 {
			t.Fatalf("%d hashes are of %d entries, not %d", len(stored)/tlog.HashSize, got, n+1)
		}
	}
}
