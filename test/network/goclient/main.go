// Command goclient prints what a server answers, as Go's HTTP client gets it.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url string) error {
	answer, err := http.Get(url) //nolint:forbidigo // what is tried is the client that programs have
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}
