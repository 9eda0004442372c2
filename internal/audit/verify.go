package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"pinfold/sandbox"
)

// Problem is the first thing in a log that is not what it was.
type Problem struct {
	Kind    string `json:"kind"`  // see the constants
	Index   int64  `json:"index"` // of the first entry that it is about
	Message string `json:"message"`
}

// The kinds of problems.
const (
	ProblemChanged    = "changed"    // the entry's bytes are others
	ProblemDropped    = "dropped"    // the entry is not there, and what follows is
	ProblemMoved      = "moved"      // the entry stands elsewhere
	ProblemCutOff     = "cut_off"    // this entry and all that followed are not there
	ProblemTree       = "tree"       // the entries are well, the file of the tree's hashes is not
	ProblemCheckpoint = "checkpoint" // a checkpoint is not signed by the key, or contradicts another
	ProblemReceipt    = "receipt"    // the log does not have what a receipt proves
	ProblemText       = "text"       // a text is not what the entry has the digest of
)

// Evidence is what a log is held against beside its own files.
type Evidence struct {
	Key         Key               // must be set
	Checkpoints []string          // files of witnesses, as a witness that is a file has them, and directories of Watchers
	Receipts    []sandbox.Receipt // of clients
}

// Report says what Verify has looked at.
type Report struct {
	Log         string   `json:"log"`
	Entries     int64    `json:"entries"`
	Root        string   `json:"root"`
	Signed      int64    `json:"signed_entries"` // those that a checkpoint vouches for
	Checkpoints int      `json:"checkpoints"`
	Receipts    int      `json:"receipts"`
	Texts       int64    `json:"texts"`     // that are kept, and what the entries say
	Forgotten   int64    `json:"forgotten"` // entries whose salt was deleted
	Problem     *Problem `json:"problem,omitempty"`
}

// Verify looks through a log: each entry against the tree, the tree against all
// checkpoints, its own and those of witnesses, receipts and texts against the entries. It
// reports the first problem. Another process may be writing meanwhile. The error says
// that something could not be read.
//
// Entries are told one by one by the file of hashes. Where somebody has rewritten that,
// too, checkpoints tell where: between one with which the log agrees and the next.
func Verify(dir string, against Evidence) (*Report, error) {
	v := &verifier{dir: dir, report: &Report{Log: against.Key.Name()}, against: against}
	if err := v.readCheckpoints(); err != nil || v.report.Problem != nil {
		return v.report, err
	}
	// What is written meanwhile has its entry before its hash.
	for name, f := range map[string]**os.File{hashesName: &v.hashes, entriesName: &v.entries} {
		file, err := os.Open(filepath.Join(dir, name)) //nolint:gosec // named by a person
		if err != nil {
			return v.report, unusable(err)
		}
		defer file.Close() //nolint:errcheck // only read
		*f = file
	}
	info, err := v.hashes.Stat()
	if err != nil {
		return v.report, unusable(err)
	}
	v.known = entriesOf(info.Size() / tlog.HashSize)
	v.texts.dir = filepath.Join(dir, textsName)
	if v.texts.files, err = textFiles(v.texts.dir); err != nil {
		return v.report, unusable(err)
	}
	defer v.texts.close()
	problem, err := v.all()
	v.report.Problem = problem
	if err != nil || problem != nil {
		return v.report, err
	}
	v.report.Root = v.edge.root().String()
	if v.report.Problem, err = v.receipts(); err != nil || v.report.Problem != nil {
		return v.report, err
	}
	return v.report, nil
}

// entriesOf is how many entries so many stored hashes are of.
func entriesOf(hashes int64) int64 {
	n := hashes/2 + 1
	for n > 0 && tlog.StoredHashCount(n) > hashes {
		n--
	}
	for tlog.StoredHashCount(n+1) <= hashes {
		n++
	}
	return n
}

// verifier is one verification on its way.
type verifier struct {
	dir             string
	against         Evidence
	report          *Report
	checkpoints     []Checkpoint // by size
	entries, hashes *os.File
	known           int64 // entries that the tree has
	edge            edge
	texts           textWalk
	good            int64 // the size of the last checkpoint with which the entries agree
}

func (v *verifier) readCheckpoints() error {
	own := filepath.Join(v.dir, checkpointsName)
	files := []string{own}
	for _, name := range v.against.Checkpoints {
		all, err := witnessFiles(name)
		if err != nil {
			return unusable(err)
		}
		files = append(files, all...)
	}
	for _, name := range files {
		before := len(v.checkpoints)
		err := eachCheckpoint(name, func(signed []byte) error {
			c, err := openCheckpoint(signed, v.against.Key)
			if err == nil {
				v.checkpoints = append(v.checkpoints, c)
			}
			return err
		})
		if err != nil {
			v.report.Problem = &Problem{ProblemCheckpoint, int64(len(v.checkpoints)), fmt.Sprintf("checkpoint %d in %s is not signed by the key %s: %s", len(v.checkpoints), name, v.against.Key.Name(), err)}
			return nil
		}
		if name != own && len(v.checkpoints) == before { // then it would contradict nothing, whatever the log is
			return &sandbox.Error{
				Code: sandbox.CodeSpecInvalid, Field: "witness", Message: sandbox.SafeText(name, 200) + " has no checkpoint that ends with a line that is a dot",
				Hint: "give the file as the witness has it; a checkpoint by itself needs that line behind it",
			}
		}
	}
	for _, r := range v.against.Receipts {
		_, c, err := VerifyReceipt(r, v.against.Key)
		if err != nil {
			v.report.Problem = &Problem{ProblemReceipt, r.Index, fmt.Sprintf("the receipt for entry %d proves nothing: %s", r.Index, err)}
			return nil
		}
		v.checkpoints = append(v.checkpoints, c)
	}
	slices.SortStableFunc(v.checkpoints, func(a, b Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	for i, c := range v.checkpoints {
		if i > 0 && c.Size == v.checkpoints[i-1].Size && c.Root != v.checkpoints[i-1].Root {
			v.report.Problem = &Problem{ProblemCheckpoint, c.Size, fmt.Sprintf("two checkpoints of %d entries contradict each other: there are two logs under one key", c.Size)}
		}
	}
	v.report.Checkpoints = len(v.checkpoints)
	if len(v.checkpoints) > 0 {
		v.report.Signed = v.checkpoints[len(v.checkpoints)-1].Size
	}
	return nil
}

// all looks at the entries, until the first problem.
func (v *verifier) all() (*Problem, error) {
	lines := bufio.NewReaderSize(io.NewSectionReader(v.entries, 0, 1<<62), 1<<20)
	tree := bufio.NewReaderSize(io.NewSectionReader(v.hashes, 0, 1<<62), 1<<16)
	for index, offset := int64(0), int64(0); ; index++ {
		if p := v.atCheckpoint(index); p != nil {
			return p, nil
		}
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return v.atEnd(index, line), nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, unusable(err)
		}
		if index >= max(v.known, v.report.Signed) { // it came while the tree was read, or has no hashes yet
			v.report.Entries = index
			return nil, nil
		}
		if p, err := v.entry(index, line, tree, offset); p != nil || err != nil {
			return p, err
		}
		offset += int64(len(line))
	}
}

// atCheckpoint compares the entries before an index with the checkpoints of that size.
func (v *verifier) atCheckpoint(size int64) *Problem {
	for len(v.checkpoints) > 0 && v.checkpoints[0].Size <= size {
		c := v.checkpoints[0]
		if c.Size == size && c.Root != v.edge.root() {
			return &Problem{ProblemChanged, v.good, fmt.Sprintf(
				"entries %d to %d are not those of the checkpoint of %d entries: one of them was changed, dropped or moved, with the tree", v.good, size-1, size)}
		}
		v.good, v.checkpoints = c.Size, v.checkpoints[1:]
	}
	return nil
}

// atEnd judges the end of the file.
func (v *verifier) atEnd(index int64, rest []byte) *Problem {
	v.report.Entries = index
	switch most := max(v.known, v.report.Signed); {
	case index < most && len(rest) > 0:
		return &Problem{ProblemChanged, index, fmt.Sprintf("entry %d has lost its end, and %d entries were there", index, most)}
	case index < most:
		return &Problem{ProblemCutOff, index, fmt.Sprintf("entry %d and what followed were cut off: %d entries were there", index, most)}
	}
	return nil
}

// entry compares one line with the tree.
func (v *verifier) entry(index int64, line []byte, tree io.Reader, offset int64) (*Problem, error) {
	leaf, salt, kind := v.line(index, line, tree)
	switch {
	case kind == ProblemChanged:
		return v.changed(index, line, offset), nil
	case kind != "":
		return &Problem{kind, index, fmt.Sprintf("the tree's hashes at entry %d are not those of the entries, which agree with their own", index)}, nil
	case salt == noSalt:
		v.report.Forgotten++
	}
	return v.textOf(index, leaf, salt)
}

// line compares a line with the hashes that the tree has of it, and adds it to the edge.
func (v *verifier) line(index int64, line []byte, tree io.Reader) (leaf []byte, salt, problem string) {
	leaf, salt, err := splitLine(bytes.TrimSuffix(line, []byte{'\n'}))
	if err != nil {
		return nil, "", ProblemChanged
	}
	for k, want := range v.edge.add(tlog.RecordHash(leaf)) {
		var stored tlog.Hash
		_, err := io.ReadFull(tree, stored[:])
		switch {
		case err == nil && stored == want:
		case err == nil && k == 0:
			return leaf, salt, ProblemChanged
		default:
			return leaf, salt, ProblemTree
		}
	}
	if indexOf(leaf) != index || !saltFits(leaf, salt) {
		return leaf, salt, ProblemChanged
	}
	return leaf, salt, ""
}

// changed says what became of an entry whose line is not the one that the tree has.
func (v *verifier) changed(index int64, line []byte, offset int64) *Problem {
	leaf, salt, err := splitLine(bytes.TrimSuffix(line, []byte{'\n'}))
	all, treeErr := io.ReadAll(io.NewSectionReader(v.hashes, 0, 1<<62))
	known := func(n int64) (h tlog.Hash) {
		if at := tlog.StoredHashIndex(0, n) * tlog.HashSize; at+tlog.HashSize <= int64(len(all)) {
			copy(h[:], all[at:])
		}
		return h
	}
	if err != nil || treeErr != nil {
		return &Problem{ProblemChanged, index, fmt.Sprintf("entry %d was changed", index)}
	}
	hash := tlog.RecordHash(leaf)
	if hash == known(index) {
		return &Problem{ProblemChanged, index, fmt.Sprintf("entry %d was changed: its salt, or the index that it says", index)}
	}
	if v.agreesWithoutTree(offset + int64(len(line))) {
		return &Problem{ProblemTree, index, fmt.Sprintf("the tree's hash of entry %d was changed; the entries agree with the next checkpoint", index)}
	}
	other := indexOf(leaf) // another entry, in the place of this one?
	if other < 0 || other == index || hash != known(other) || !saltFits(leaf, salt) {
		return &Problem{ProblemChanged, index, fmt.Sprintf("entry %d was changed", index)}
	}
	kind, became := ProblemDropped, "is not there any more"
	_ = scanFile(io.NewSectionReader(v.entries, offset, 1<<62), offset, index, func(e rawEntry) error {
		if tlog.RecordHash(e.leaf) != known(index) {
			return nil
		}
		kind, became = ProblemMoved, fmt.Sprintf("stands in the place of entry %d", e.index)
		return errStop
	})
	return &Problem{kind, index, fmt.Sprintf("in the place of entry %d stands entry %d; entry %d %s", index, other, index, became)}
}

// agreesWithoutTree says whether the entries, the rest of which begin at an offset, are
// those of the next checkpoint, whatever the tree's file has.
func (v *verifier) agreesWithoutTree(offset int64) bool {
	if len(v.checkpoints) == 0 {
		return false
	}
	e, next := v.edge, v.checkpoints[0]
	if e.size < next.Size {
		_ = scanFile(io.NewSectionReader(v.entries, offset, 1<<62), offset, e.size, func(raw rawEntry) error {
			if e.add(tlog.RecordHash(raw.leaf)); e.size == next.Size {
				return errStop
			}
			return nil
		})
	}
	return e.size == next.Size && e.root() == next.Root
}

// receipts holds the log against receipts, whose checkpoints were among the others.
func (v *verifier) receipts() (*Problem, error) {
	for _, r := range v.against.Receipts {
		v.report.Receipts++
		if r.Index >= v.report.Entries {
			return &Problem{ProblemReceipt, r.Index, fmt.Sprintf("there is a receipt for entry %d, and no such entry", r.Index)}, nil
		}
		stored, err := storedHashes(v.hashes).ReadHashes([]int64{tlog.StoredHashIndex(0, r.Index)})
		if err != nil {
			return nil, unusable(err)
		}
		if stored[0] != tlog.RecordHash([]byte(r.Leaf)) {
			return &Problem{ProblemReceipt, r.Index, fmt.Sprintf("entry %d is not the one of its receipt", r.Index)}, nil
		}
	}
	return nil, nil
}
