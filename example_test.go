package pinfold_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"pinfold"
	"pinfold/sandbox"
)

// The simplest use: one program in a fresh sandbox.
func ExampleLocal_Run() {
	ctx := context.Background()
	local, err := pinfold.Open(ctx, pinfold.Options{})
	if err != nil {
		panic(err)
	}
	defer local.Close()
	result, err := local.Run(ctx, sandbox.Spec{
		Language: "python",
		Code:     "print(6*7)",
		Limits:   sandbox.Limits{WallTimeMS: 2000, MemoryBytes: 64 << 20},
	}, pinfold.RunOptions{})
	if err != nil {
		panic(err) // nothing was run
	}
	fmt.Println(result.Status, result.Cause.Kind, result.Stdout)
}

// A sandbox that stays: files go in, a command runs, a file comes out.
func ExampleLocal_Create() {
	ctx := context.Background()
	local, err := pinfold.Open(ctx, pinfold.Options{
		Pools: []sandbox.PoolSpec{{Name: "ready", Min: 2}},
	})
	if err != nil {
		panic(err)
	}
	defer local.Close()
	box, err := local.Create(ctx, sandbox.Create{TTLMS: 60_000, Require: []string{"network:none"}})
	if err != nil {
		panic(err)
	}
	defer box.Destroy(ctx)
	if err := box.WriteFile(ctx, "numbers.txt", 0, -1, strings.NewReader("3\n1\n2\n")); err != nil {
		panic(err)
	}
	p, err := box.Exec(ctx, sandbox.Command{Shell: "sort numbers.txt | tee sorted.txt"}, pinfold.ExecOptions{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Status)
	if _, err := box.ReadFile(ctx, "sorted.txt", 0, -1, os.Stdout); err != nil {
		panic(err)
	}
}
