//go:build lean

package main

import (
	"os"

	"pinfold/internal/cli"
	"pinfold/internal/wholebin"
)

// whole starts the whole program.
func whole() cli.Whole {
	return func() error { return wholebin.Exec(os.Args) }
}

// child is nobody: see whole.go.
func child([]string) (status int, over bool) { return 0, false }
