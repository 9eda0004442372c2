//go:build linux

// Command guestprobe runs inside a sandbox and tries one thing: what it sees,
// what it can reach, what it can use up. It prints what it found as one line of
// JSON and leaves the judgement to the test outside.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// tries are the things that it can try. The arguments are the command line's.
var tries = map[string]func(args []string) any{
	"self":    func([]string) any { return self() },
	"open":    open,
	"create":  create,
	"list":    list,
	"walk":    walk,
	"read":    read,
	"write":   write,
	"dial":    dial,
	"listen":  listen,
	"serve":   serve,
	"shmput":  shmPut,
	"shmget":  shmGet,
	"alloc":   alloc,
	"fork":    fork,
	"spin":    spin,
	"fill":    fill,
	"inodes":  inodes,
	"threads": threads,
	"hold":    func([]string) any { hold(); return nil },
}

func main() {
	if len(os.Args) < 2 || tries[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "guestprobe: unknown try")
		os.Exit(2)
	}
	say(tries[os.Args[1]](os.Args[2:]))
}

// say prints one finding.
func say(v any) {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		fmt.Fprintln(os.Stderr, "guestprobe:", err)
		os.Exit(3)
	}
}

// hold waits until stdin ends.
func hold() {
	var b [1]byte
	for {
		if n, err := os.Stdin.Read(b[:]); n == 0 || err != nil {
			return
		}
	}
}
