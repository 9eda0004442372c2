package pinfold

import (
	"pinfold/internal/audit"
	"pinfold/sandbox"
)

// VerifyReceipt checks, without a server, that a receipt proves what it says, and returns
// the entry that it proves. publicKey is the log's, NAME+HASH+KEY, as "pinfold audit key"
// prints it. The error is a *sandbox.Error of code receipt_invalid, or spec_invalid for
// the key.
func VerifyReceipt(r sandbox.Receipt, publicKey string) (sandbox.AuditEntry, error) {
	key, err := audit.ParseKey(publicKey)
	if err != nil {
		return sandbox.AuditEntry{}, err
	}
	entry, _, err := audit.VerifyReceipt(r, key)
	if err != nil {
		return sandbox.AuditEntry{}, err
	}
	return entry, nil
}

// VerifyResult is VerifyReceipt for a whole result: it is also compared with what was
// recorded of it.
func VerifyResult(r *sandbox.Result, publicKey string) (sandbox.AuditEntry, error) {
	if r.Receipt == nil {
		return sandbox.AuditEntry{}, &sandbox.Error{Code: sandbox.CodeReceiptInvalid, Field: "receipt", Message: "the result has none"}
	}
	entry, err := VerifyReceipt(*r.Receipt, publicKey)
	if err == nil {
		err = audit.CheckResult(r, entry)
	}
	if err != nil {
		return sandbox.AuditEntry{}, err
	}
	return entry, nil
}
