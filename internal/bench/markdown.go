package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Marker separates what people write in a document from what a command of pinfold writes
// below it.
func Marker(command string) string {
	return "<!-- written by pinfold " + command + ": everything below -->"
}

// maxDocument bounds the document that is written into.
const maxDocument = 4 << 20

// WriteMarkdown writes the report into a document. One that exists and has the
// Marker keeps what stands above it; charts are shown from the directory in
// which they were written, if any. A document without the Marker is replaced
// only if it is empty or not there.
func (r *Report) WriteMarkdown(path, charts string) error {
	above, marker := "# Benchmarks\n\n", Marker(r.Command)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.Mode().IsRegular() && info.Size() > 0:
		if info.Size() > maxDocument {
			return fmt.Errorf("%s is larger than %d bytes", path, maxDocument)
		}
		old, err := os.ReadFile(path) //nolint:gosec // the user names it
		if err != nil {
			return err
		}
		var found bool
		if above, _, found = strings.Cut(string(old), marker); !found {
			return fmt.Errorf("%s has no line %s: its text would be lost", path, marker)
		}
	}
	prefix := ""
	if charts != "" {
		if prefix, err = filepath.Rel(filepath.Dir(path), charts); err != nil {
			prefix = charts
		}
	}
	return os.WriteFile(path, []byte(above+marker+"\n\n"+r.markdown(prefix, charts != "")), 0o644) //nolint:gosec // a document
}

// markdown is the generated part.
func (r *Report) markdown(prefix string, charts bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made by `pinfold %s%s` of version %s.\n\n%s\n", r.Command, r.Options, r.Version, r.Line())
	r.markdownTargets(&b)
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n## %s\n", s.Title)
		if s.Text != "" {
			fmt.Fprintf(&b, "\n%s\n", s.Text)
		}
		for _, t := range s.Tables {
			t.markdown(&b)
		}
		for _, c := range s.Charts {
			if charts {
				fmt.Fprintf(&b, "\n![%s](%s)\n", strings.NewReplacer("[", "", "]", "").Replace(plain(c.Title)), filepath.ToSlash(filepath.Join(prefix, c.File)))
			}
		}
		if len(s.Notes) > 0 {
			b.WriteString("\n")
		}
		for _, n := range s.Notes {
			fmt.Fprintf(&b, "- %s\n", cell(n))
		}
	}
	for i, f := range r.Failures {
		if i == 0 {
			b.WriteString("\n## Failures\n\n")
		}
		fmt.Fprintf(&b, "- %s\n", cell(f))
	}
	return b.String()
}

func (r *Report) markdownTargets(b *strings.Builder) {
	if len(r.Targets) == 0 {
		return
	}
	b.WriteString("\n## Targets\n\nThey are aims, not promises; how they stand is what this run measured.\n")
	group := ""
	for _, t := range r.Targets {
		if t.Group != group {
			group = t.Group
			fmt.Fprintf(b, "\n### %s\n\n", group)
		}
		fmt.Fprintf(b, "- %s: **%s**%s\n", t.Aim, t.State, inBrackets(t.Measured))
	}
}

func (t *Table) markdown(b *strings.Builder) {
	b.WriteString("\n")
	if t.Title != "" {
		fmt.Fprintf(b, "%s\n\n", t.Title)
	}
	for i, row := range t.cells() {
		for j := range row {
			row[j] = cell(row[j])
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|---|" + strings.Repeat("--:|", len(t.Columns)))
			if t.Last != "" {
				b.WriteString("---|")
			}
			b.WriteString("\n")
		}
	}
}

// cell is text that stays in its place in a document: foreign text may stand
// in notes.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(s)
}
