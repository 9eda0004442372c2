package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"pinfold/internal/engine/records"

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
		return invalid("salt", "was deleted: what the digests are of cannot be checked any more", nil)
	case !ok && len(content) == 0:
		return nil
	case !ok:
		return another(name, "the entry has no digest of it")
	case said != digest(r.Salt, name, content):
		return another(name, "is not what the entry has the digest of")
	}
	return nil
}

// CheckResult says whether a result is the one that its receipt is about: its id, how it
// ended, its output, its values and its artifacts.
func CheckResult(r *sandbox.Result, e sandbox.AuditEntry) error {
	if r.Receipt == nil {
		return invalid("receipt", "the result has none", nil)
	}
	want := records.RunEvent(r)
	for _, same := range []struct {
		field string
		is    bool
	}{
		{"id", e.Kind == sandbox.AuditRun && e.ID == want.Entry.ID},
		{"status", e.Status == want.Entry.Status},
		{"cause.kind", e.Cause == want.Entry.Cause},
		{"cause.evidence", e.Evidence == fit(want.Entry).Evidence},
		{"exit_code", (e.ExitCode == nil) == (r.ExitCode == nil) && (r.ExitCode == nil || *e.ExitCode == *r.ExitCode)},
		{"signal", e.Signal == r.Signal},
		{"usage", e.WallMS == r.Usage.WallMS && e.CPUMS == r.Usage.CPUMS},
	} {
		if !same.is {
			return another(same.field, "is not what the receipt says")
		}
	}
	if r.Receipt.Salt == "" {
		return nil
	}
	var wrong []error
	for _, name := range records.ResultParts() {
		if err := CheckContent(*r.Receipt, e, name, want.Parts[name]); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// ParseReceipt reads a receipt, also one with its entry, or the result of a run that has one, which is then
// returned, too.
func ParseReceipt(text []byte) (sandbox.Receipt, *sandbox.Result, error) {
	var both struct {
		Checkpoint string          `json:"checkpoint"`
		Receipt    json.RawMessage `json:"receipt"`
		Entry      json.RawMessage `json:"entry"`
	}
	err := json.Unmarshal(text, &both)
	var r sandbox.Receipt
	switch {
	case err == nil && both.Checkpoint != "":
		err = json.Unmarshal(text, &r)
		return r, nil, badReceipt(err)
	case err == nil && len(both.Entry) > 0: // as "audit show --json" and GET /v1/audit/N have it
		err = json.Unmarshal(both.Receipt, &r)
		return r, nil, badReceipt(err)
	case err == nil && len(both.Receipt) > 0:
		var result sandbox.Result
		if err = json.Unmarshal(text, &result); err == nil && result.Receipt != nil {
			return *result.Receipt, &result, nil
		}
	case err == nil:
		err = errors.New("it has neither a checkpoint nor a receipt")
	}
	return r, nil, badReceipt(err)
}

func badReceipt(err error) error {
	if err == nil {
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.CodeReceiptInvalid, Message: fmt.Sprintf("this is neither a receipt nor a result with one: %s", strings.TrimPrefix(err.Error(), "json: ")), Err: err,
		Hint: "pinfold run --receipt FILE writes one, and every result of a server with an audit log has one",
	}
}
