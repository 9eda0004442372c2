package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pinfold/sandbox"
)

// What contradicts a log that is watched. Each is a file with two checkpoints: the one that
// was seen before and the one that does not go with it.
const (
	// EvidenceFork has two roots of one size: proof that there are two logs under one key.
	EvidenceFork = "fork"
	// EvidenceRolledBack has a later one that is of fewer entries. Whoever has an old
	// checkpoint, such as one in a receipt, can send it again: verifying the log with both tells.
	EvidenceRolledBack = "rolled_back"
	// EvidenceUnproven has a later one for which no proof held. Whoever has a newer
	// checkpoint can send it with a wrong proof: verifying the log with both tells.
	EvidenceUnproven = "unproven"
)

const (
	maxContradictions = 16      // files of each kind, for each log: claims do not crowd out proofs
	notesFile         = 1 << 20 // bytes, after which another file of checkpoints is begun
	notesFiles        = 256     // of a log; then the oldest goes
	notesPrefix       = checkpointsName + "-"
)

// openWatched reads what is known of a log. Only the last note of a file is checked: who
// could change the others could change that one.
func openWatched(dir string, key Key) (*watched, error) {
	l := &watched{key: key, dir: filepath.Join(dir, watchedName(key)), recent: map[int64]seen{}, budget: takenBurst, filled: time.Now()}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, unwatchable(err)
	}
	if err := writeWhole(filepath.Join(l.dir, publicName), key.String()+"\n", 0o644); err != nil {
		return nil, unwatchable(err)
	}
	if err := syncDir(dir); err != nil {
		return nil, unwatchable(err)
	}
	files, err := notesOf(l.dir)
	if err != nil {
		return nil, unwatchable(err)
	}
	if len(files) == 0 {
		return l, nil
	}
	err = eachCheckpoint(files[len(files)-1], func(signed []byte) error {
		text, _, _ := strings.Cut(string(signed), "\n\n")
		c, err := parseCheckpoint(text + "\n")
		if err == nil {
			l.remember(seen{c, string(signed)})
		}
		return err
	})
	if err == nil && l.last.Size == 0 {
		err = errors.New("a file of checkpoints has none")
	}
	if err == nil {
		_, err = openCheckpoint([]byte(l.last.signed), key)
	}
	if err != nil {
		return nil, &sandbox.Error{
			Code: sandbox.CodeStateCorrupt, Message: fmt.Sprintf("what was seen of the log %s in %s is damaged: %s", key.Name(), l.dir, err), Err: err,
			Hint: "move the directory aside to begin anew, and keep it",
		}
	}
	return l, nil
}

// watchedName is a log's directory: another key is another log.
func watchedName(key Key) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, key.Name())
	return fmt.Sprintf("%.64s+%08x", name, key.verifier.KeyHash())
}

// notesOf lists the files of checkpoints in a directory, the oldest first.
func notesOf(dir string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(escapeGlob(dir), notesPrefix+strings.Repeat("[0-9]", 19)))
	slices.Sort(all)
	return all, err
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// keep writes a checkpoint down: at the end of the newest file, or in one of its own. Each
// way it is there whole or not at all after a crash, and no earlier one is touched.
func (l *watched) keep(c seen) error {
	files, err := notesOf(l.dir)
	if err != nil {
		return err
	}
	if n := len(files); n > 0 {
		info, err := os.Stat(files[n-1])
		if err != nil {
			return err
		}
		if info.Size() < notesFile {
			return appendNote(files[n-1], c.signed)
		}
	}
	if err := writeWhole(filepath.Join(l.dir, fmt.Sprintf("%s%019d", notesPrefix, c.Size)), c.signed+endOfNote, 0o600); err != nil {
		return err
	}
	for len(files) >= notesFiles {
		if err := os.Remove(files[0]); err != nil {
			return err
		}
		files = files[1:]
	}
	return nil
}

// keepEvidence keeps two checkpoints that contradict each other, in a file of their own that
// nothing overwrites, where the second is in none yet and there is room.
func keepEvidence(dir, kind string, before, c seen) (file string, isNew bool, err error) {
	text := before.signed + endOfNote + c.signed + endOfNote
	for i := range maxContradictions {
		file = filepath.Join(dir, fmt.Sprintf("%s-%02d", kind, i+1))
		kept, err := readSmall(file, 4*maxNote)
		switch {
		case err == nil && strings.HasSuffix(string(kept), endOfNote+c.signed+endOfNote):
			return file, false, nil
		case err == nil:
			continue
		case !errors.Is(err, os.ErrNotExist):
			return "", false, err
		}
		if err := writeWhole(file+".new", text, 0o600); err != nil {
			return "", false, err
		}
		if err := os.Link(file+".new", file); err != nil { // unlike a rename it replaces nothing
			return "", false, err
		}
		if err := errors.Join(os.Remove(file+".new"), syncDir(dir)); err != nil {
			return "", false, err
		}
		return file, true, nil
	}
	return "", false, nil
}

// Witnessed is what a witness knows of a log.
type Witnessed struct {
	Log      string    `json:"log"`
	Key      string    `json:"key"`
	Entries  int64     `json:"entries"` // of the last checkpoint; 0: none was seen
	Root     string    `json:"root,omitempty"`
	At       time.Time `json:"at,omitzero"` // when it was seen, by the witness's clock
	Dir      string    `json:"dir"`         // with the files of checkpoints
	Evidence []string  `json:"evidence"`    // files of contradictions
}

// ReadWitnessed reads what the witness in a directory knows, also of logs that are not
// watched any more. A server may be running. Errors are *sandbox.Error.
func ReadWitnessed(dir string) ([]Witnessed, error) {
	keys, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*", publicName))
	if err != nil {
		return nil, unwatchable(err)
	}
	all := []Witnessed{}
	for _, file := range keys {
		w, err := readWitnessed(filepath.Dir(file))
		if err != nil {
			return nil, unwatchable(err)
		}
		all = append(all, w)
	}
	return all, nil
}

func readWitnessed(dir string) (Witnessed, error) {
	public, err := readSmall(filepath.Join(dir, publicName), maxKeyFile)
	if err != nil {
		return Witnessed{}, err
	}
	key, err := ParseKey(string(public))
	if err != nil {
		return Witnessed{}, err
	}
	w := Witnessed{Log: key.Name(), Key: key.String(), Dir: dir, Evidence: []string{}}
	files, err := notesOf(dir)
	if err != nil {
		return Witnessed{}, err
	}
	if n := len(files); n > 0 {
		last, err := lastNote(files[n-1], key)
		if err != nil {
			return Witnessed{}, err
		}
		info, err := os.Stat(files[n-1])
		if err != nil {
			return Witnessed{}, err
		}
		w.Entries, w.Root, w.At = last.Size, last.Root.String(), info.ModTime().UTC()
	}
	for _, kind := range []string{EvidenceFork, EvidenceRolledBack, EvidenceUnproven} {
		found, err := filepath.Glob(filepath.Join(escapeGlob(dir), kind+"-[0-9][0-9]"))
		if err != nil {
			return Witnessed{}, err
		}
		w.Evidence = append(w.Evidence, found...)
	}
	return w, nil
}

// lastNote is the last checkpoint of a file, which alone is checked.
func lastNote(file string, key Key) (Checkpoint, error) {
	var last []byte
	err := eachCheckpoint(file, func(signed []byte) error { last = signed; return nil })
	if err != nil {
		return Checkpoint{}, err
	}
	return openCheckpoint(last, key)
}

// witnessFiles are the files of checkpoints that a person has named: one, or all those of a
// directory that a witness keeps.
func witnessFiles(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	files, err := notesOf(name)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no files of checkpoints", name)
	}
	return files, err
}

func unwatchable(err error) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeConfigInvalid, Field: "audit.witness_for", Message: "other logs cannot be witnessed: " + err.Error(), Err: err,
		Hint: "the server must be able to write to witness/ in its state directory",
	}
}
