//go:build !lean

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/client"
	"pinfold/internal/audit"
	"pinfold/internal/config/defaults"
	"pinfold/internal/hostfiles"
	"pinfold/sandbox"
)

const auditLong = `What a server has recorded, where audit.enabled is set in its configuration: runs,
processes and living sandboxes, with the wall around them and how they ended.
Nobody can change, drop or move an entry without "audit verify" naming it.

list, show and export ask the server of --server, or read the state directory DIR
on the server's own machine (without --state, the usual one); it may run
meanwhile. verify, key, forget and witnessed need DIR.`

const auditExamples = `  pinfold audit list --tenant team-x --since 720h      which runs, on which wall
  pinfold audit list --isolation vm --status killed
  pinfold audit list --tenant team-x --secret github   which runs used it, on which wall
  pinfold audit show 17
  pinfold audit verify --key key.pub --witness /mnt/other/checkpoints
  pinfold audit witnessed                              what this server has seen of others' logs
  pinfold audit export >log.jsonl`

// auditFlags are the flags of the commands below "audit".
type auditFlags struct {
	state                             string
	tenant, byKey                     string
	ids, kinds, drivers, levels, ends []string
	secrets, findings, severities     []string
	rules, deciders                   []string
	since                             time.Duration
	after, before                     string
	most                              int
	quiet, json, texts                bool
	key                               string
	witnesses, receipts               []string
}

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Ask a server's audit log, and verify it", Long: auditLong, Example: auditExamples,
		Args: unknownCommand, RunE: helpOnly,
	}
	cmd.AddCommand(a.auditListCommand(), a.auditShowCommand(), a.auditExportCommand(), a.auditVerifyCommand(), a.auditForgetCommand(), a.auditKeyCommand(), a.auditWitnessedCommand())
	return cmd
}

func (f *auditFlags) bindState(set *pflag.FlagSet) {
	set.StringVar(&f.state, "state", "", "the server's state directory (default "+defaults.State()+")")
	group(set, "State", "state DIR")
}

func (f *auditFlags) bindChoice(set *pflag.FlagSet) {
	set.StringVar(&f.tenant, "tenant", "", "only this tenant's")
	set.StringVar(&f.byKey, "by", "", "only what was asked for by the key of this id")
	set.StringSliceVar(&f.ids, "id", nil, "only about these runs, processes and sandboxes")
	set.StringSliceVar(&f.kinds, "kind", nil, "only of these kinds: "+kindNames())
	set.StringSliceVar(&f.drivers, "driver", nil, "only in sandboxes of these drivers")
	set.StringSliceVar(&f.levels, "isolation", nil, "only with these levels: "+strings.Join(sandbox.IsolationLevels(), ", "))
	set.StringSliceVar(&f.ends, "status", nil, "only those that ended so: succeeded, failed, killed, error")
	set.StringSliceVar(&f.secrets, "secret", nil, "only what put these secrets into a request, and what set or removed them")
	set.StringSliceVar(&f.findings, "finding", nil, "only runs in which these rules of the scan found something")
	set.StringSliceVar(&f.severities, "severity", nil, "only runs whose worst finding was this: info, notice, warning, danger")
	set.StringSliceVar(&f.rules, "rule", nil, "only what these rules of the operator's policy matched")
	set.StringSliceVar(&f.deciders, "decided-by", nil, "only runs on which the keys of these ids decided, and their decisions")
	set.DurationVar(&f.since, "since", 0, "only those that were recorded within this time")
	set.StringVar(&f.after, "after", "", "only those that were recorded then or later, such as 2026-01-31T12:00:00Z")
	set.StringVar(&f.before, "before", "", "only those that were recorded before")
	group(set, "Choice", "tenant NAME", "by KEY", "id IDS", "kind KINDS", "driver NAMES", "isolation LEVELS", "status STATUSES", "secret NAMES", "finding RULES", "severity SEVERITIES", "rule RULES", "decided-by KEYS", "since TIME", "after DATE", "before DATE")
}

func kindNames() string {
	var all []string
	for _, k := range sandbox.AuditKinds() {
		all = append(all, string(k))
	}
	return strings.Join(all, ", ")
}

// filter is what the flags of choice ask for.
func (f *auditFlags) filter() (audit.Filter, error) {
	all := audit.Filter{Tenant: f.tenant, Key: f.byKey, IDs: f.ids, Drivers: f.drivers, Levels: f.levels, Secrets: f.secrets, Findings: f.findings, Rules: f.rules, By: f.deciders}
	for _, s := range f.severities {
		if !slices.Contains(sandbox.Severities(), sandbox.Severity(s)) {
			return all, usageError("--severity: no severity \"%s\"", sandbox.SafeText(s, 40)).WithHint("they are info, notice, warning, danger")
		}
		all.Severities = append(all.Severities, sandbox.Severity(s))
	}
	for _, k := range f.kinds {
		if !slices.Contains(sandbox.AuditKinds(), sandbox.AuditKind(k)) {
			return all, usageError("--kind: no kind \"%s\"", sandbox.SafeText(k, 40)).WithHint("the kinds are " + kindNames())
		}
		all.Kinds = append(all.Kinds, sandbox.AuditKind(k))
	}
	for _, s := range f.ends {
		if !slices.Contains([]string{"succeeded", "failed", "killed", "error"}, s) {
			return all, usageError("--status: no status \"%s\"", sandbox.SafeText(s, 40)).WithHint("they are succeeded, failed, killed, error")
		}
		all.Statuses = append(all.Statuses, sandbox.Status(s))
	}
	for _, l := range f.levels {
		if !slices.Contains(sandbox.IsolationLevels(), l) {
			return all, usageError("--isolation: no level \"%s\"", sandbox.SafeText(l, 40)).WithHint("the levels are " + strings.Join(sandbox.IsolationLevels(), ", "))
		}
	}
	if f.since > 0 {
		all.Since = time.Now().Add(-f.since)
	}
	for _, at := range []struct {
		flag, text string
		to         *time.Time
	}{{"--after", f.after, &all.Since}, {"--before", f.before, &all.Before}} {
		if at.text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339, at.text)
		if err != nil {
			t, err = time.Parse(time.DateOnly, at.text)
		}
		if err != nil {
			return all, usageError("%s: \"%s\" is no time", at.flag, sandbox.SafeText(at.text, 40)).WithHint("write it as 2026-01-31 or 2026-01-31T12:00:00Z")
		}
		*at.to = t
	}
	return all, nil
}

// dir is the log of the state directory.
func (f *auditFlags) dir() (string, error) {
	state := cmp.Or(f.state, defaults.State())
	dir := filepath.Join(state, audit.Dir)
	if audit.Exists(dir) {
		return dir, nil
	}
	return "", hostfiles.PathError(sandbox.CodeFileNotFound, dir, "is not an audit log").
		WithHint("name the server's state directory with --state; audit.enabled: true in the server's configuration begins a log")
}

// auditEntries are those that are selected, of the server that was named or of a directory.
func (a *app) auditEntries(ctx context.Context, f *auditFlags, choice audit.Filter) (iter.Seq2[sandbox.AuditEntry, error], func(), error) {
	if f.state == "" && a.remote() {
		c, err := a.connect()
		if err != nil {
			return nil, nil, err
		}
		asked := client.AuditFilter{
			Tenant: choice.Tenant, Key: choice.Key, IDs: choice.IDs, Kinds: choice.Kinds, Drivers: choice.Drivers, Isolation: choice.Levels,
			Statuses: choice.Statuses, Secrets: choice.Secrets, Findings: choice.Findings, Severities: choice.Severities,
			Rules: choice.Rules, DecidedBy: choice.By, Since: choice.Since, Before: choice.Before, PageSize: 1000,
		}
		return c.AuditEntries(ctx, asked), func() { _ = c.Close() }, nil
	}
	dir, err := f.dir()
	if err != nil {
		return nil, nil, err
	}
	return func(yield func(sandbox.AuditEntry, error) bool) {
		err := audit.Each(dir, func(e sandbox.AuditEntry, _ []byte, _ string) error {
			if choice.Matches(e) && !yield(e, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(sandbox.AuditEntry{}, err)
		}
	}, func() {}, nil
}

// errEnough ends a walk of entries.
var errEnough = errors.New("enough")

// usualEntries are those that are listed where nobody chose how many.
const usualEntries = "oldest 1000"

func (a *app) auditListCommand() *cobra.Command {
	f := &auditFlags{}
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List entries, the oldest first", Args: noArgs, Example: auditExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkMost(f.most, usualEntries); err != nil {
				return err
			}
			choice, err := f.filter()
			if err != nil {
				return err
			}
			all, done, err := a.auditEntries(cmd.Context(), f, choice)
			if err != nil {
				return err
			}
			defer done()
			found, more, err := collect(all, f.most)
			if err != nil {
				return err
			}
			defer a.sayMore(cmd.Flags(), more, usualEntries)
			if f.json {
				return writeList(a, "entries", found)
			}
			t := newTable("ENTRY", "RECORDED", "KIND", "ID", "TENANT", "KEY", "DRIVER", "ISOLATION", "STATUS", "CAUSE", "SECRETS", "WORST", "RULES", "DECIDED BY")
			for _, e := range found {
				wall, network, ruled := sandbox.AuditIsolation{}, sandbox.AuditNetwork{}, sandbox.AuditPolicy{}
				if e.Policy != nil {
					ruled = *e.Policy
				}
				if e.Isolation != nil {
					wall = *e.Isolation
				}
				if e.Network != nil {
					network = *e.Network
				}
				t.row(strconv.FormatInt(e.Index, 10), e.Time.Format(timeForm), string(e.Kind), e.ID, e.Tenant, e.Key, wall.Driver, wall.Level, string(e.Status), string(e.Cause), strings.Join(network.Secrets, ","), string(e.Severity), strings.Join(ruled.Rules, ","), decided(ruled))
			}
			return a.writeTable(t, f.quiet)
		},
	}
	f.bindState(cmd.Flags())
	f.bindChoice(cmd.Flags())
	cmd.Flags().IntVar(&f.most, "limit", 1000, "how many at most")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print indexes only")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	group(cmd.Flags(), groupOutput, "limit N", "quiet", "json")
	return cmd
}

// decided says what a person decided, and by which key.
func decided(p sandbox.AuditPolicy) string {
	if p.By == "" {
		return string(p.Verdict)
	}
	return p.By + " (" + string(p.Verdict) + ")"
}

func (a *app) auditExportCommand() *cobra.Command {
	f := &auditFlags{}
	cmd := &cobra.Command{
		Use: "export [flags]", Short: "Print entries as JSON lines, the oldest first", Args: noArgs, Example: "  pinfold audit export --tenant team-x >entries.jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			choice, err := f.filter()
			if err != nil {
				return err
			}
			defer catchBrokenPipe()()
			all, done, err := a.auditEntries(cmd.Context(), f, choice)
			if err != nil {
				return err
			}
			defer done()
			for e, err := range all {
				if err == nil {
					err = a.writeJSON(e)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.bindState(cmd.Flags())
	f.bindChoice(cmd.Flags())
	return cmd
}

func (a *app) auditShowCommand() *cobra.Command {
	f := &auditFlags{}
	cmd := &cobra.Command{
		Use: "show [flags] ENTRY", Short: "Show an entry, with its receipt or its texts", Args: needArgs(1, 1, "the index of an entry"), Example: "  pinfold audit show 17 --json | jq .receipt >17.receipt",
		RunE: func(cmd *cobra.Command, args []string) error {
			index, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || index < 0 {
				return usageError("\"%s\" is not the index of an entry", sandbox.SafeText(args[0], 40)).WithHint("pinfold audit list shows them")
			}
			if f.state == "" && a.remote() {
				return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
					r, err := c.AuditRecord(ctx, index)
					if err != nil {
						return err
					}
					return a.showRecord(f, r, nil)
				})
			}
			dir, err := f.dir()
			if err != nil {
				return err
			}
			r, err := audit.Lookup(dir, index)
			if err != nil {
				return err
			}
			var parts map[string][]byte
			if f.texts {
				if parts, err = audit.Texts(dir, index); err != nil {
					return err
				}
			}
			return a.showRecord(f, r, parts)
		},
	}
	f.bindState(cmd.Flags())
	cmd.Flags().BoolVar(&f.texts, "texts", false, "on the server's machine: with the texts that are kept of it")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	group(cmd.Flags(), groupOutput, "texts", "json")
	return cmd
}

func (a *app) showRecord(f *auditFlags, r sandbox.AuditRecord, parts map[string][]byte) error {
	if f.json {
		texts := map[string]string{}
		for name, b := range parts {
			texts[name] = string(b)
		}
		return a.writeJSON(struct {
			sandbox.AuditRecord

			Texts map[string]string `json:"texts,omitempty"`
		}{r, texts})
	}
	t := newTable("ENTRY", strconv.FormatInt(r.Entry.Index, 10))
	entryRows(t, r.Entry)
	for _, name := range slices.Sorted(maps.Keys(r.Entry.Digests)) {
		t.row("digest of "+name, r.Entry.Digests[name])
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		t.row("text of "+name, string(parts[name]))
	}
	return a.writeTable(t, false)
}

func (a *app) auditVerifyCommand() *cobra.Command {
	f := &auditFlags{}
	cmd := &cobra.Command{
		Use: "verify [flags]", Short: "Look for the first entry that is not what it was", Args: noArgs,
		Long: `Looks through all of a log: each entry against the tree, the tree against the
checkpoints that were signed, texts against digests. It names the first entry that
was changed, dropped, moved or cut off, and exits with 1.

Who holds the disk and the log's key can put back an older state of everything, or
sign a new one. What others have kept tells: files of witnesses (--witness), and
receipts or results of runs (--receipt). Without --key it takes audit/key.pub
beside the log, which whoever changed the log can have changed, too.`,
		Example: "  pinfold audit verify --key key.pub --witness /mnt/other/checkpoints --receipt job.receipt",
		RunE:    func(*cobra.Command, []string) error { return a.verifyAudit(f) },
	}
	set := cmd.Flags()
	f.bindState(set)
	set.StringVar(&f.key, "key", "", "the log's public key, or a file with it (default audit/key.pub)")
	set.StringArrayVar(&f.witnesses, "witness", nil, "a file of checkpoints that somebody else has kept, or a witness's directory of them; may be repeated")
	set.StringArrayVar(&f.receipts, "receipt", nil, "a receipt or a result with one; may be repeated")
	set.BoolVar(&f.json, "json", false, "print JSON")
	group(set, "Check", "key KEY|FILE", "witness FILE", "receipt FILE", "json")
	cmd.Annotations = map[string]string{localOnly: "true"}
	return cmd
}

func (a *app) verifyAudit(f *auditFlags) error {
	dir, err := f.dir()
	if err != nil {
		return err
	}
	against := audit.Evidence{Checkpoints: f.witnesses}
	if against.Key, err = a.auditKey(cmp.Or(f.key, audit.KeyFile(dir))); err != nil {
		return err
	}
	for _, name := range f.receipts {
		text, err := a.readBounded(name, maxReceiptFile)
		if err != nil {
			return err
		}
		r, _, err := audit.ParseReceipt(text)
		if err != nil {
			return err
		}
		against.Receipts = append(against.Receipts, r)
	}
	report, err := audit.Verify(dir, against)
	if err != nil {
		return err
	}
	if report.Problem != nil {
		a.exit = exitFound
	}
	if f.json {
		return a.writeJSON(report)
	}
	if p := report.Problem; p != nil {
		return a.write([]byte("NOT AS IT WAS: " + p.Kind + " at entry " + strconv.FormatInt(p.Index, 10) + ": " + sandbox.SafeText(p.Message, maxMessage) + "\n"))
	}
	return a.write(fmt.Appendf(nil, "%s: %d entries are as they were recorded; %d of them are signed for, by %s and %s; %d texts agree, %d were deleted\n",
		report.Log, report.Entries, report.Signed, plural(report.Checkpoints-report.Receipts, "checkpoint"), plural(report.Receipts, "receipt"), report.Texts, report.Forgotten))
}

// exitFound is the exit status of a verification that has found something.
const exitFound = 1

func (a *app) auditForgetCommand() *cobra.Command {
	f := &auditFlags{}
	cmd := &cobra.Command{
		Use: "forget [flags]", Short: "Delete the texts of entries for good; the entries and all proofs stay", Args: noArgs,
		Long: `Deletes what is kept of programs and output beside the entries that are chosen, and
their salts, without which nobody can find out by guessing what the digests are
of. The server must not run. Entries stay, with tenant and key.`,
		Example: "  pinfold audit forget --tenant team-x --state DIR",
		RunE: func(*cobra.Command, []string) error {
			choice, err := f.filter()
			if err != nil {
				return err
			}
			if choice.Empty() {
				return usageError("nothing is chosen").WithHint("say whose with --tenant, or which with --id")
			}
			dir, err := f.dir()
			if err != nil {
				return err
			}
			n, err := audit.ForgetIn(dir, choice)
			if err != nil {
				return err
			}
			return a.writeLine(f.json, map[string]int{"forgotten": n}, fmt.Sprintf("%d entries have no texts and no salts any more", n))
		},
	}
	f.bindState(cmd.Flags())
	f.bindChoice(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	cmd.Annotations = map[string]string{localOnly: "true"}
	return cmd
}

func (a *app) auditKeyCommand() *cobra.Command {
	f := &auditFlags{}
	cmd := &cobra.Command{
		Use: "key [flags]", Short: "Print the log's public key, for who verifies receipts", Args: noArgs, Example: "  pinfold audit key >key.pub",
		RunE: func(*cobra.Command, []string) error {
			dir, err := f.dir()
			if err != nil {
				return err
			}
			b, err := a.readBounded(audit.KeyFile(dir), 1<<10)
			if err != nil {
				return err
			}
			return a.write(b)
		},
	}
	f.bindState(cmd.Flags())
	cmd.Annotations = map[string]string{localOnly: "true"}
	return cmd
}
