package fake

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"pinfold/sandbox"
)

// Builtin is what programs do by default, by their name: echo, cat, sleep (for
// ever, or its seconds), true, false, exit, env, pwd, yes, size (of the terminal,
// and again whenever it changes), touch; sh -c runs them one after the other,
// separated by semicolons, without quotes. Anything else exits with 127.
func Builtin(p *Process) Exit { return p.builtin(p.Args) }

func (p *Process) builtin(args []string) Exit {
	name := args[0]
	switch name[strings.LastIndexByte(name, '/')+1:] {
	case "sh", "bash":
		return p.shell(args)
	case "echo":
		p.print(strings.Join(args[1:], " "))
	case "cat":
		_, _ = io.Copy(p.Stdout, p.Stdin)
	case "sleep":
		p.Sleep(duration(args[1:]))
	case "env":
		p.print(strings.Join(p.Env, "\n"))
	case "pwd":
		p.print(absolute(p.Dir))
	case "touch":
		for _, f := range args[1:] {
			p.Machine.Files.Put(f, "")
		}
	case "yes":
		for _, err := io.WriteString(p.Stdout, "y\n"); err == nil; _, err = io.WriteString(p.Stdout, "y\n") {
		}
	case "size":
		p.printSizes()
	case "true":
	case "exit":
		n, _ := strconv.Atoi(strings.Join(args[1:], "")) // 0 unless it is one
		return Exit{Code: n}
	case "false":
		return Exit{Code: 1}
	default:
		_, _ = io.WriteString(p.Stderr, sandbox.SafeText(name, 80)+": not found\n")
		return Exit{Code: 127}
	}
	return Exit{}
}

func (p *Process) print(line string) { _, _ = io.WriteString(p.Stdout, line+"\n") }

// duration of a sleep; an hour unless it is a number of seconds.
func duration(args []string) time.Duration {
	if len(args) == 1 {
		if s, err := strconv.ParseFloat(args[0], 64); err == nil {
			return time.Duration(s * float64(time.Second))
		}
	}
	return time.Hour
}

// shell runs a line's commands; the last one's exit is its own.
func (p *Process) shell(args []string) (e Exit) {
	if len(args) < 3 || args[1] != "-c" {
		_, _ = io.Copy(io.Discard, p.Stdin)
		return Exit{}
	}
	for command := range strings.SplitSeq(args[2], ";") {
		select {
		case <-p.Killed:
			return e
		default:
		}
		if words := strings.Fields(command); len(words) > 0 {
			if e = p.builtin(words); words[0] == "exit" {
				break
			}
		}
	}
	return e
}

// printSizes prints the terminal's size, and again after each change, until it
// is killed.
func (p *Process) printSizes() {
	for {
		p.print(fmt.Sprintf("%d %d", p.Size().Rows, p.Size().Cols))
		select {
		case <-p.Killed:
			return
		case <-p.Resized:
		}
	}
}
