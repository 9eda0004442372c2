// Command client does the same as command library on a server, which
// PINFOLD_SERVER and PINFOLD_KEY name, and speaks with a web server that runs
// in a sandbox.
//
//	PINFOLD_SERVER=http://127.0.0.1:7463 PINFOLD_KEY=pfk_… go run ./examples/client
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"pinfold/client"
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
	c, err := client.New("") // PINFOLD_SERVER, PINFOLD_KEY
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	// With an idempotency key a broken connection does no harm: the program
	// runs once, and its output comes whole.
	result, err := c.Run(ctx, sandbox.Spec{Language: "sh", Code: "echo $((6*7))"}, client.RunOptions{
		Stdout: os.Stdout, IdempotencyKey: fmt.Sprint("example-", time.Now().UnixNano()),
	})
	if err != nil {
		return err
	}
	fmt.Println(result.Status, result.Cause.Kind)

	box, err := c.Create(ctx, sandbox.Create{TTLMS: 60_000})
	if err != nil {
		return err
	}
	defer func() { _, _ = box.Destroy(ctx) }() // its time to live would end it, too
	if err := box.WriteFile(ctx, "index.html", 0, -1, strings.NewReader("hello from inside\n")); err != nil {
		return err
	}
	if _, err := box.Start(ctx, sandbox.Command{Args: []string{"python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"}}); err != nil {
		return err
	}
	return fetch(ctx, &http.Client{Transport: box.Transport(8000)})
}

// fetch asks until the server inside has started.
func fetch(ctx context.Context, web *http.Client) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox/index.html", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := web.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // it comes from a guest
		_ = resp.Body.Close()
		switch {
		case err != nil:
			return err
		case resp.StatusCode == http.StatusOK:
			fmt.Print(sandbox.SafeText(strings.TrimSpace(string(body)), 100), "\n")
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}
