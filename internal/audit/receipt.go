package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"pinfold/internal/engine/records"
	"pinfold/internal/engine/stdio"
	"pinfold/sandbox"
)

const maxProof = 63

// VerifyReceipt checks that a log with that key had the entry of a receipt, and returns
// the entry and the checkpoint that proves it. It needs nothing else. Errors are
// *sandbox.Error of code receipt_invalid.
func VerifyReceipt(r sandbox.Receipt, key Key) (sandbox.AuditEntry, Checkpoint, error) {
	var e sandbox.AuditEntry
	c, err := openCheckpoint([]byte(r.Checkpoint), key)
	if err != nil {
		return e, c, invalid("checkpoint", "is not signed by the key "+key.Name(), err)
	}
	if len(r.Leaf) > maxLeaf || len(r.Proof) > maxProof || r.Index < 0 || r.Index >= c.Size {
		return e, c, invalid("index", "is not in that checkpoint", nil)
	}
	proof := make(tlog.RecordProof, len(r.Proof))
	for i, text := range r.Proof {
		if proof[i], err = tlog.ParseHash(text); err != nil || proof[i].String() != text {
			return e, c, invalid("proof", "has something else than hashes", err)
		}
	}
	if err := tlog.CheckRecord(proof, c.Size, c.Root, r.Index, tlog.RecordHash([]byte(r.Leaf))); err != nil {
		return e, c, invalid("leaf", "is not the entry of that index in the log, or was changed", err)
	}
	if err := json.Unmarshal([]byte(r.Leaf), &e); err != nil || indexOf([]byte(r.Leaf)) != r.Index {
		return e, c, invalid("leaf", "is not an entry", err)
	}
	if r.Salt != "" && commitment(r.Salt) != e.SaltSHA256 {
		return e, c, invalid("salt", "is not the salt of the entry", nil)
	}
	return e, c, nil
}

func invalid(field, message string, err error) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeReceiptInvalid, Field: field, Message: message, Err: err,
		Hint: "ask the server for the receipt again, and for its public key by a way that you trust",
	}
}

// another is of what was not recorded so.
func another(field, message string) *sandbox.Error {
	return invalid(field, message, nil).WithHint("it was changed since, or belongs to another receipt; pinfold result RUN --json has the result as the server gave it")
}

// CheckContent says whether a content is what an entry has the digest of, by its name.
func CheckContent(r sandbox.Receipt, e sandbox.AuditEntry, name string, content []byte) error {
	said, ok := e.Digests[name]
	switch {
	case r.Salt == "":
		return noSaltLeft()
	case !ok && len(content) == 0:
		return nil
	case !ok:
		return another(name, "the entry has no digest of it")
	case said != digest(r.Salt, name, content):
		return another(name, "is not what the entry has the digest of")
	}
	return nil
}

func noSaltLeft() error {
	return invalid("salt", "is not there: what the digests are of cannot be checked", nil).WithHint("verify the receipt by itself, or with the salt that it came with; one whose texts were deleted has none any more")
}

// CheckResult says whether a result is the one that its receipt is about: its id, how it
// ended, its output, its values and its artifacts.
func CheckResult(r *sandbox.Result, e sandbox.AuditEntry) error {
	if r.Receipt == nil {
		return invalid("receipt", "the result has none", nil)
	}
	want := records.RunEvent(r)
	if err := sameEnd(e, fit(want.Entry)); err != nil {
		return err
	}
	for i, a := range r.Artifacts {
		if len(a.Content) > 0 && (int64(len(a.Content)) != a.Size || hex.EncodeToString(sum(a.Content)) != a.SHA256) {
			return another(fmt.Sprintf("artifacts[%d].content_base64", i), "is not what its sha256 is of")
		}
	}
	return sameParts(*r.Receipt, e, want, records.ResultParts(), []output{
		{"stdout", r.Stdout, r.StdoutRaw}, {"stderr", r.Stderr, r.StderrRaw},
	})
}

// CheckProcess says whether a process that has ended is the one that its receipt is about:
// its id, its arguments, how it ended and, where it is there, its output.
func CheckProcess(p *sandbox.Process, e sandbox.AuditEntry) error {
	if p.Receipt == nil {
		return invalid("receipt", "the process has none", nil)
	}
	want := records.ProcessEvent(*p, sandbox.Command{})
	if err := sameEnd(e, fit(want.Entry)); err != nil {
		return err
	}
	names, outputs := []string{"args"}, []output(nil)
	if p.HasOutput || p.Stdout != "" || p.Stderr != "" || len(p.StdoutRaw)+len(p.StderrRaw) > 0 {
		names = append(names, "stdout", "stderr")
		outputs = []output{{"stdout", p.Stdout, p.StdoutRaw}, {"stderr", p.Stderr, p.StderrRaw}}
	}
	return sameParts(*p.Receipt, e, want, names, outputs)
}

// sameEnd compares how something ended with what an entry says.
func sameEnd(e, want sandbox.AuditEntry) error {
	for _, same := range []struct {
		field string
		is    bool
	}{
		{"id", e.Kind == want.Kind && e.ID == want.ID},
		{"language", e.Language == want.Language},
		{"profile", (e.Profile == nil) == (want.Profile == nil) && (want.Profile == nil || *e.Profile == *want.Profile)},
		{"status", e.Status == want.Status},
		{"cause.kind", e.Cause == want.Cause},
		{"cause.evidence", e.Evidence == want.Evidence},
		{"exit_code", (e.ExitCode == nil) == (want.ExitCode == nil) && (want.ExitCode == nil || *e.ExitCode == *want.ExitCode)},
		{"signal", e.Signal == want.Signal},
		{"error.code", e.Error == want.Error},
		{"usage", e.WallMS == want.WallMS && e.CPUMS == want.CPUMS && e.Memory == want.Memory},
	} {
		if !same.is {
			return another(same.field, "is not what the receipt says")
		}
	}
	return nil
}

// output is one stream of what a program printed: its text, and its bytes where they were
// asked for.
type output struct {
	name, text string
	raw        []byte
}

// sameParts compares contents with the digests of an entry.
func sameParts(r sandbox.Receipt, e sandbox.AuditEntry, want records.Event, names []string, outputs []output) error {
	for _, o := range outputs {
		if len(o.raw) > 0 && stdio.Text(o.raw) != o.text {
			return another(o.name+"_base64", "is not what "+o.name+" is the text of")
		}
	}
	if r.Salt == "" { // else who takes it out of a receipt could change all that it has digests of
		return noSaltLeft()
	}
	var wrong []error
	for _, name := range names {
		if err := CheckContent(r, e, name, want.Parts[name]); err != nil {
			wrong = append(wrong, err)
		}
	}
	for _, o := range outputs {
		if len(o.raw) > 0 && string(o.raw) != o.text { // else the text says it all
			if err := CheckContent(r, e, records.RawPart(o.name), o.raw); err != nil {
				wrong = append(wrong, err)
			}
		}
	}
	return errors.Join(wrong...)
}

func sum(content []byte) []byte {
	s := sha256.Sum256(content)
	return s[:]
}
