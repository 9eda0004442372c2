//go:build linux

package library

import (
	"bufio"
	"fmt"
	"io"
	"testing"

	"pinfold/client"
	"pinfold/sandbox"
)

// A run reads what a stream brings, as it comes; it does not wait for the end of
// one that it does not read.
func TestStdinOfARun(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		fromUs, toProgram := io.Pipe()
		answers, fromProgram := io.Pipe()
		type ended struct {
			r   *sandbox.Result
			err error
		}
		done := make(chan ended, 1)
		go func() {
			r, err := w.Run(t.Context(), sandbox.Spec{Language: "sh", Code: "while read -r n; do echo $((n+1)); done"}, client.RunOptions{Stdin: fromUs, Stdout: fromProgram})
			_ = fromProgram.CloseWithError(err)
			done <- ended{r, err}
		}()
		lines := bufio.NewScanner(answers)
		for n := range 3 {
			must(fmt.Fprintln(toProgram, n))(t)
			if !lines.Scan() || lines.Text() != fmt.Sprint(n+1) {
				t.Fatalf("asked %d: %q, %v", n, lines.Text(), lines.Err())
			}
		}
		ok(t, toProgram.Close())
		if e := <-done; e.err != nil || e.r.Status != sandbox.StatusSucceeded || e.r.Stdout != "1\n2\n3\n" {
			t.Fatalf("%+v", e)
		}
		never, writer := io.Pipe()
		defer writer.Close() // lets go of what reads it
		if r := must(w.Run(t.Context(), sandbox.Spec{Language: "sh", Code: "echo done"}, client.RunOptions{Stdin: never}))(t); r.Stdout != "done\n" {
			t.Fatalf("%+v", r)
		}
	})
}
