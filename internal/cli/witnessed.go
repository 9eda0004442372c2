//go:build !lean

package cli

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"pinfold/internal/audit"
	"pinfold/internal/config/defaults"
	"pinfold/internal/hostfiles"
	"pinfold/sandbox"
)

func (a *app) auditWitnessedCommand() *cobra.Command {
	f := &auditFlags{}
	cmd := &cobra.Command{
		Use: "witnessed [flags]", Short: "List what this server, as a witness, has seen of others' logs", Args: noArgs,
		Long: `Lists the logs that this server is or was a witness of (audit.witness_for), with the
last checkpoint that it took and the evidence against them: files with two checkpoints
each that contradict each other. It exits with 1 when there is evidence.

DIR of a log goes to its auditor, who gives it to "audit verify --witness".`,
		Example: "  pinfold audit witnessed\n  pinfold audit witnessed --json --state DIR",
		RunE:    func(*cobra.Command, []string) error { return a.listWitnessed(f) },
	}
	f.bindState(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	cmd.Annotations = map[string]string{localOnly: "true"}
	return cmd
}

func (a *app) listWitnessed(f *auditFlags) error {
	dir := filepath.Join(cmp.Or(f.state, defaults.State()), audit.WatchDir)
	if _, err := os.Stat(dir); err != nil {
		return hostfiles.PathError(sandbox.CodeFileNotFound, dir, "is not there: this server is no witness").
			WithHint("name the server's state directory with --state; audit.witness_for in the server's configuration makes it a witness")
	}
	all, err := audit.ReadWitnessed(dir)
	if err != nil {
		return err
	}
	t := newTable("LOG", "ENTRIES", "SEEN", "DIR", "EVIDENCE")
	for _, w := range all {
		if len(w.Evidence) > 0 {
			a.exit = exitFound
		}
		at := "-"
		if w.Entries > 0 {
			at = w.At.Format(time.RFC3339)
		}
		t.row(sandbox.SafeText(w.Log, 80), strconv.FormatInt(w.Entries, 10), at, w.Dir, strconv.Itoa(len(w.Evidence)))
		for _, file := range w.Evidence {
			t.row("", "", "", "", file)
		}
	}
	if f.json {
		return a.writeJSON(all)
	}
	return a.writeTable(t, false)
}
