//go:build !lean

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/internal/config"
	"pinfold/internal/config/defaults"
	"pinfold/internal/serve"
	"pinfold/sandbox"
)

const serveLong = `Serve sandboxes over HTTP until SIGTERM or SIGINT: then running programs may
finish (drain_timeout), and the rest ends. A second signal ends them at once.
SIGHUP reads quotas, pools, the log's level and the certificate again.

At the first start a key with all rights is made and written to first-key in the
state directory: --state, or /var/lib/pinfold for root and ~/.local/state/pinfold
for others. "pinfold key" makes other keys. Who may open a unix socket needs no key. The log
goes to stderr.

Exit status: 0 when it was told to end, 125 when it could not serve; with --check
0 when all is well, 1 when something is not.`

const serveExamples = `  pinfold serve                              on 127.0.0.1:7463
  pinfold serve --config /etc/pinfold/pinfold.yaml --check
  pinfold serve --listen unix:/run/user/1000/pinfold.sock --state ~/pinfold
  pinfold serve --listen 0.0.0.0:443 --tls-cert tls.crt --tls-key tls.key
  pinfold serve --example > pinfold.yaml     a file with every key`

// serveFlags are the flags of "serve" as they were given.
type serveFlags struct {
	config                           string
	over                             config.Overrides
	check, json, quarantine, example bool
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve [flags]", Short: "Serve sandboxes over HTTP", Long: serveLong, Example: serveExamples, Args: noArgs,
		Annotations: map[string]string{localOnly: "true"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, &f) },
	}
	f.bind(cmd.Flags())
	f.complete(cmd)
	return cmd
}

// bind declares the flags.
func (f *serveFlags) bind(set *pflag.FlagSet) {
	set.StringVar(&f.config, "config", "", "read this file; the other flags override it")
	set.StringArrayVar(&f.over.Listen, "listen", nil, "listen here; may be repeated (default "+defaults.Listen+")")
	set.StringVar(&f.over.State, "state", "", "keep everything here (default "+defaults.State()+")")
	set.StringVar(&f.over.Domain, "domain", "", "give sandboxes' ports host names below this domain")
	group(set, "Address and state", "config FILE", "listen ADDR|unix:PATH", "state DIR", "domain NAME")

	set.StringVar(&f.over.TLSCert, "tls-cert", "", "the certificate and its chain, in PEM")
	set.StringVar(&f.over.TLSKey, "tls-key", "", "the certificate's key, in PEM")
	set.BoolVar(&f.over.InsecureListen, "insecure-listen", false, "allow addresses that other machines reach without TLS")
	group(set, "TLS", "tls-cert FILE", "tls-key FILE", "insecure-listen")

	set.StringVar(&f.over.LogLevel, "log-level", "", "debug, info, warn or error (default info)")
	set.StringVar(&f.over.LogFormat, "log-format", "", "text or json (default text)")
	group(set, "Log", "log-level LEVEL", "log-format FORMAT")

	set.BoolVar(&f.check, "check", false, "look at configuration, state and host, say what is wrong, and end")
	set.BoolVar(&f.json, "json", false, "with --check: print JSON")
	set.BoolVar(&f.quarantine, "quarantine", false, "move a damaged database aside and begin with an empty one")
	set.BoolVar(&f.example, "example", false, "print a configuration file with every key, and end")
}

func (f *serveFlags) complete(cmd *cobra.Command) {
	completeChoices(cmd, map[string]func() []string{
		"log-level":  func() []string { return []string{"debug", "info", "warn", "error"} },
		"log-format": func() []string { return []string{config.FormatText, config.FormatJSON} },
		"listen":     func() []string { return []string{defaults.Listen, config.UnixPrefix} },
	})
	completePaths(cmd, "state", "config", "tls-cert", "tls-key")
}

// load reads the file, if one was named, puts the flags over it and checks
// the whole.
func (f *serveFlags) load() (*config.Config, error) {
	c, err := config.Default(), error(nil)
	if f.config != "" {
		c, err = config.Load(f.config)
		if errors.Is(err, fs.ErrNotExist) {
			err = sandbox.AsError(err).WithHint("name a file that is there, or leave --config out for the defaults")
		}
		if c == nil {
			return nil, err
		}
	}
	c.Override(f.over)
	return c, errors.Join(err, c.Validate())
}

// firstWrong is the first error of a configuration. It says that there are more, and who
// tells them.
func firstWrong(err error) error {
	if len(serve.Misconfigured(err)) < 2 {
		return err
	}
	first := *sandbox.AsError(err)
	first.Message += ` (more is wrong: "pinfold serve --check" with the same flags tells all)`
	return &first
}

func (a *app) serve(cmd *cobra.Command, f *serveFlags) error {
	if err := refuseEmpty(cmd.Flags()); err != nil {
		return err
	}
	if f.example {
		return a.write([]byte(config.Example()))
	}
	c, err := f.load()
	if f.check && err != nil {
		return a.reportCheck(serve.Misconfigured(err), f.json)
	}
	if err != nil {
		return firstWrong(err)
	}
	if f.check {
		return a.reportCheck(a.Whole.CheckServe(cmd.Context(), c), f.json)
	}
	if f.json {
		return usageError("--json belongs to --check").WithHint("for a log in JSON: --log-format json")
	}
	defer catchBrokenPipe()() // who reads the log may go away; the server stays
	o := serve.Options{
		Log: a.Stderr, ShowKey: isTerminal(a.Stderr), Quarantine: f.quarantine, Signals: serverSignals(),
	}
	if f.config != "" {
		o.Reload = func() (*config.Config, error) {
			fresh, err := f.load()
			return fresh, firstWrong(err)
		}
	}
	if c.Log.Format == config.FormatText {
		o.Say = func(line string) { a.say("%s", sandbox.SafeText(line, maxMessage)) }
	}
	return a.Whole.Serve(cmd.Context(), c, o)
}

// serverSignals are for the rest of the process's life: once it serves, nobody
// else may end it.
func serverSignals() <-chan os.Signal {
	ch := make(chan os.Signal, 4)
	notifyEnd(ch)
	return ch
}

// reportCheck prints what a check has found. It sets the exit status.
func (a *app) reportCheck(found []serve.Finding, asJSON bool) error {
	for _, f := range found {
		if !f.OK {
			a.exit = 1
		}
	}
	if asJSON {
		return a.writeJSON(struct {
			OK       bool            `json:"ok"`
			Findings []serve.Finding `json:"findings"`
		}{a.exit == 0, found})
	}
	var b bytes.Buffer
	for _, f := range found {
		mark := "ok"
		if !f.OK {
			mark = "NOT OK"
		}
		fmt.Fprintf(&b, "%-6s  %s: %s\n", mark, sandbox.SafeText(f.What, maxMessage), sandbox.SafeText(f.Detail, maxMessage))
		if f.Fix != "" {
			fmt.Fprintf(&b, "        fix: %s\n", sandbox.SafeText(f.Fix, maxMessage))
		}
	}
	return a.write(b.Bytes())
}
