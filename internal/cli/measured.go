//go:build !lean

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/internal/bench"
	"pinfold/sandbox"
)

// reportFlags are where the report of a command goes that measures.
type reportFlags struct{ json, markdown, svg string }

func (f *reportFlags) bind(set *pflag.FlagSet, command string) {
	set.StringVar(&f.json, "json", "", "write all numbers as JSON; - is stdout, without the tables")
	set.StringVar(&f.markdown, "markdown", "", "write the report as Markdown; in a document with the line\n"+strings.Repeat(" ", 35)+bench.Marker(command)+" below that line")
	set.StringVar(&f.svg, "svg", "", "write charts into this directory")
	group(set, groupOutput, "json FILE", "markdown FILE", "svg DIR")
}

func (f *reportFlags) complete(cmd *cobra.Command) { completePaths(cmd, "svg", "json", "markdown") }

// timed says on stderr what is being measured, and since when.
func (a *app) timed() func(line string) {
	began := time.Now()
	return func(line string) {
		_, _ = fmt.Fprintf(a.Stderr, "%5.0fs  %s\n", time.Since(began).Seconds(), line)
	}
}

// sections writes each section when it is done, unless stdout is for the JSON.
func (a *app) sections(f *reportFlags) func(s *bench.Section) {
	return func(s *bench.Section) {
		if f.json == fromStdin {
			return
		}
		var b bytes.Buffer
		s.WriteText(&b)
		_ = a.write(append(b.Bytes(), '\n')) // that nobody reads it is found out at the end
	}
}

// writeReport writes what a report comes to, and the files that were asked for.
func (a *app) writeReport(f *reportFlags, r *bench.Report) error {
	var b bytes.Buffer
	r.WriteSummary(&b)
	for i, failure := range r.Failures {
		a.exit = 1
		if i == 0 {
			b.WriteString("\nFAILED\n")
		}
		fmt.Fprintf(&b, "- %s\n", failure)
	}
	if f.json != fromStdin {
		if err := a.write(b.Bytes()); err != nil {
			return err
		}
	}
	if f.json != "" {
		text, err := r.JSON()
		if err != nil {
			return err
		}
		if f.json == fromStdin {
			if err := a.write(text); err != nil {
				return err
			}
		} else if err := os.WriteFile(f.json, text, 0o644); err != nil { //nolint:gosec // a report
			return cannotWrite("--json", err)
		}
	}
	if f.svg != "" {
		if err := r.WriteCharts(f.svg); err != nil {
			return cannotWrite("--svg", err)
		}
	}
	if f.markdown != "" {
		if err := r.WriteMarkdown(f.markdown, f.svg); err != nil {
			return cannotWrite("--markdown", err)
		}
	}
	return nil
}

// cannotWrite says which of the files could not be written.
func cannotWrite(flag string, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return &sandbox.Error{Code: sandbox.CodeResourceUnavailable, Message: flag + ": cannot write " + err.Error(), Err: err}
}
