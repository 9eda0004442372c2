//go:build !lean

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/internal/audit"
	"pinfold/sandbox"
)

const receiptLong = `A receipt proves that a run stands in a server's audit log as its result says.
Each result of such a server has one.

FILE is a receipt (pinfold run --receipt FILE) or a whole result (--json), of
which id, cause, output, values and artifacts are then compared with the receipt,
too, or a process of a living sandbox as JSON, likewise; - is stdin. KEY is the log's public key or a file with it: audit/key.pub in
the server's state directory. Get it from whoever runs the server, not with the
receipt. Nothing else is needed, and no network.

Exit status: 0 when it proves what it says, otherwise 125.`

const receiptExamples = `  pinfold run --receipt job.receipt job.py
  pinfold receipt verify job.receipt --key key.pub
  pinfold receipt verify result.json --key key.pub --code job.py`

// maxReceiptFile bounds a result with its artifacts.
const maxReceiptFile = 256 << 20

// receiptFlags are the flags of "receipt verify".
type receiptFlags struct {
	key, code string
	json      bool
}

func (a *app) receiptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "receipt", Short: "Check the receipts of an audit log, offline", Long: receiptLong, Example: receiptExamples,
		Args: unknownCommand, RunE: helpOnly,
	}
	f := &receiptFlags{}
	verify := &cobra.Command{
		Use: "verify FILE|- --key KEY|FILE", Short: "Check that a receipt proves what it says", Long: receiptLong, Example: receiptExamples,
		Args: needArgs(1, 1, "a receipt or a result"),
		RunE: func(_ *cobra.Command, args []string) error { return a.verifyReceipt(f, args[0]) },
	}
	set := verify.Flags()
	set.StringVar(&f.key, "key", "", "the log's public key, or a file with it")
	set.StringVar(&f.code, "code", "", "compare this program with the one that ran")
	set.BoolVar(&f.json, "json", false, "print the entry that is proved, as JSON")
	group(set, "Check", "key KEY|FILE", "code FILE", "json")
	cmd.AddCommand(verify)
	for _, c := range []*cobra.Command{cmd, verify} {
		c.Annotations = map[string]string{localOnly: "true"}
	}
	return cmd
}

func (a *app) verifyReceipt(f *receiptFlags, file string) error {
	key, err := a.auditKey(f.key)
	if err != nil {
		return err
	}
	text, err := a.readBounded(file, maxReceiptFile)
	if err != nil {
		return err
	}
	r, check, err := audit.ParseReceipt(text)
	if err != nil {
		return err
	}
	entry, head, err := audit.VerifyReceipt(r, key)
	if err == nil && check != nil {
		err = firstOf(check(entry))
	}
	if err == nil && f.code != "" {
		var program []byte
		if program, err = a.readBounded(f.code, sandbox.MaxCodeBytes); err == nil {
			err = audit.CheckContent(r, entry, "code", program)
		}
	}
	switch {
	case err != nil:
		return err
	case f.json:
		return a.writeJSON(sandbox.AuditRecord{Entry: entry, Receipt: &r})
	}
	t := newTable("PROVED", fmt.Sprintf("entry %d of %d in the log %s", entry.Index, head.Size, head.Name))
	entryRows(t, entry)
	if check != nil {
		t.row("result", "is the one that was recorded")
	}
	if f.code != "" {
		t.row("code", "is the program that ran")
	}
	return a.writeTable(t, false)
}

// firstOf is the first of several errors.
func firstOf(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) > 0 {
		return joined.Unwrap()[0]
	}
	return err
}

// auditKey reads a public key that was given, or the file of one.
func (a *app) auditKey(named string) (audit.Key, error) {
	if named == "" {
		return audit.Key{}, usageError("--key is missing: without the log's public key nothing is proved").WithHint("it is the file audit/key.pub in the server's state directory; add --key key.pub")
	}
	if !strings.Contains(named, "+") || looksLikeFile(named) {
		b, err := a.readBounded(named, 1<<10)
		if err != nil {
			return audit.Key{}, prefixed("--key", err)
		}
		named = string(b)
	}
	key, err := audit.ParseKey(named)
	if err != nil {
		return key, prefixed("--key", err)
	}
	return key, nil
}

// entryRows says what stands in an entry.
func entryRows(t *table, e sandbox.AuditEntry) {
	wall := sandbox.AuditIsolation{}
	if e.Isolation != nil {
		wall = *e.Isolation
	}
	ruled := sandbox.AuditPolicy{}
	if e.Policy != nil {
		ruled = *e.Policy
	}
	profile := ""
	if e.Profile != nil {
		profile = e.Profile.Name + " " + e.Profile.Digest
	}
	exit := e.Signal
	if e.ExitCode != nil {
		exit = fmt.Sprint(*e.ExitCode)
	}
	for _, row := range [][2]string{
		{"kind", string(e.Kind)},
		{"id", e.ID},
		{"sandbox", e.Sandbox},
		{"origin", e.Origin},
		{"recorded", e.Time.Format(timeForm) + " by the server's clock"},
		{"tenant", e.Tenant},
		{"key", e.Key},
		{"language", e.Language},
		{"template", e.Template},
		{"profile", profile},
		{"driver", wall.Driver},
		{"isolation", wall.Level},
		{"required", strings.Join(wall.Required, ", ")},
		{"enforced", strings.Join(wall.Enforced, ", ")},
		{"not enforced", strings.Join(wall.NotEnforced, ", ")},
		{"network", networkText(e.Network)},
		{"secrets", secretsText(e.Network)},
		{"status", string(e.Status)},
		{"cause", string(e.Cause)},
		{"evidence", e.Evidence},
		{"exit", exit},
		{"error", e.Error},
		{"gate", string(e.Gate)},
		{"findings", strings.Join(e.Findings, ", ")},
		{"worst", string(e.Severity)},
		{"policy", ruled.Digest},
		{"rules", strings.Join(ruled.Rules, ", ")},
		{"decided by", strings.TrimSpace(ruled.By + " " + string(ruled.Verdict))},
	} {
		if row[1] != "" {
			t.row(row[0], row[1])
		}
	}
}

// networkText says what went on with declared endpoints; nothing where none were.
func networkText(n *sandbox.AuditNetwork) string {
	if n == nil {
		return ""
	}
	text := plural(int(n.Connections), "connection")
	if n.Requests > 0 {
		text += ", " + plural(int(n.Requests), "request")
	}
	return fmt.Sprintf("%s, %d denied", text, n.Denied)
}

func secretsText(n *sandbox.AuditNetwork) string {
	if n == nil {
		return ""
	}
	return strings.Join(n.Secrets, ", ")
}

const timeForm = "2006-01-02 15:04:05 MST"
