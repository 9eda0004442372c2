//go:build linux

package library

import (
	"slices"
	"strings"
	"testing"

	"pinfold/client"
	"pinfold/sandbox"
)

// Every place in which a program can make a file is looked at for changes:
// here it makes one wherever it can.
func TestChangesInEveryWritablePlace(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{})
		p := must(b.Exec(ctx, sandbox.Command{Shell: `find / -path /proc -prune -o -type d -writable -print 2>/dev/null | while read -r d; do touch "$d/made" 2>/dev/null && echo "$d/made"; done`}, client.ExecOptions{}))(t)
		changes, err := b.Changes(ctx, 100)
		ok(t, err)
		var listed []string
		for _, c := range changes.Items {
			listed = append(listed, c.File.Path)
		}
		lines := strings.Fields(p.Stdout)
		if len(lines) < 4 {
			t.Errorf("the program could write in %q only", lines)
		}
		for _, name := range lines {
			if !slices.Contains(listed, name) {
				t.Errorf("%s was made and is not listed in %q", name, listed)
			}
		}
	})
}
