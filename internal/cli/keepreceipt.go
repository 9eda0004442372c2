package cli

import (
	"context"
	"encoding/json"
	"os"

	"pinfold/internal/hostfiles"
	"pinfold/sandbox"
)

// keepReceipt writes a result's receipt to a file, where one is named. That there is no
// receipt is an error: somebody relies on it.
func keepReceipt(file string, r *sandbox.Result) error {
	switch {
	case file == "":
		return nil
	case r.ReceiptMissing != nil:
		return prefixed("--receipt", r.ReceiptMissing)
	case r.Receipt == nil:
		return noReceipt("has")
	}
	b, err := json.Marshal(r.Receipt)
	if err == nil {
		err = os.WriteFile(file, append(b, '\n'), 0o644) //nolint:gosec // it is for showing around
	}
	if err != nil {
		return prefixed("--receipt", hostfiles.OpenError(file, err))
	}
	return nil
}

func noReceipt(has string) error {
	return prefixed("--receipt", &sandbox.Error{
		Code: sandbox.CodeNotFound, Message: "the server keeps no audit log, so the run " + has + " no receipt", Hint: "audit.enabled: true in the server's configuration begins one",
	})
}

// receiptComes asks the server, before anything runs, whether it keeps the log that a
// receipt is of. What else is wrong the run finds out.
func receiptComes(ctx context.Context, file string, r Runner) error {
	server, ok := r.(remoteRunner)
	if file == "" || !ok {
		return nil
	}
	if _, err := server.client.AuditCheckpoint(ctx); err != nil && sandbox.AsError(err).Code == sandbox.CodeNotFound {
		return noReceipt("would have")
	}
	return nil
}

// checkReceipt refuses --receipt where none can come.
func (a *app) checkReceipt(f *runFlags) error {
	if f.receipt == "" || a.remote() && !f.detach {
		return nil
	}
	return usageError("--receipt: a receipt comes with the result of a server that keeps an audit log").
		WithHint("name one with --server, and wait for the result; pinfold result --wait --receipt FILE RUN writes it, too")
}
