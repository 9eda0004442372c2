// Command library runs sandboxes in its own process: one program, then a
// sandbox that stays.
//
//	CGO_ENABLED=0 go build -o . ./examples/library ./cmd/pinfold-agent
//	./library
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"pinfold"
	"pinfold/sandbox"
)

func main() {
	if err := run(context.Background()); err != nil {
		e := sandbox.AsError(err)
		fmt.Fprintln(os.Stderr, e.Error())
		fmt.Fprintln(os.Stderr, "hint:", e.Hint)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	local, err := pinfold.Open(ctx, pinfold.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }() // nothing is left when it returns nil

	// One program in a fresh sandbox. What became of it is in the result.
	result, err := local.Run(ctx, sandbox.Spec{
		Language: "sh",
		Code:     "while :; do :; done",
		Limits:   sandbox.Limits{CPUTimeMS: 200},
	}, pinfold.RunOptions{})
	if err != nil {
		return err
	}
	fmt.Println(result.Status, result.Cause.Kind)

	// A sandbox that stays until somebody ends it.
	box, err := local.Create(ctx, sandbox.Create{TTLMS: 60_000})
	if err != nil {
		return err
	}
	defer func() { _, _ = box.Destroy(ctx) }() // its time to live would end it, too
	if err := box.WriteFile(ctx, "numbers.txt", 0, -1, strings.NewReader("3\n1\n2\n")); err != nil {
		return err
	}
	p, err := box.Exec(ctx, sandbox.Command{Args: []string{"sort", "numbers.txt"}}, pinfold.ExecOptions{Stdout: os.Stdout})
	if err != nil {
		return err
	}
	fmt.Println(p.Status)
	return nil
}
