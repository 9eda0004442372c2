package client_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing/fstest"

	"pinfold/client"
	"pinfold/internal/access"
	"pinfold/internal/api"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// anybody lets everybody in, as the examples' tenant.
type anybody struct{}

func (anybody) Authenticate(context.Context, string) (access.Principal, error) {
	return access.Principal{Tenant: records.LocalTenant, Scopes: access.Scopes()}, nil
}

func (anybody) Standing(context.Context, string) (access.Principal, error) {
	return access.Principal{Tenant: records.LocalTenant, Scopes: access.Scopes()}, nil
}

// startServer starts a server whose sandboxes are made of memory, and returns
// its address.
func startServer() (address string, stop func()) {
	host := fstest.MapFS{"usr/bin/sh": &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}}
	template, err := image.Host(host)
	if err != nil {
		panic(err)
	}
	says := func(p *fake.Process) fake.Exit {
		if strings.HasSuffix(p.Args[len(p.Args)-1], ".sh") { // a run's program
			fmt.Fprintln(p.Stdout, 6*7)
			return fake.Exit{}
		}
		return fake.Builtin(p)
	}
	e := engine.New(engine.Options{
		Drivers:  []driver.Driver{fake.New(fake.Options{Script: func(driver.Plan) fake.Script { return fake.Script{Program: says} }})},
		Template: func(string) (image.Template, error) { return template, nil },
		Host:     host,
	})
	h, err := api.New(api.Options{Engine: e, Access: anybody{}})
	if err != nil {
		panic(err)
	}
	s := httptest.NewServer(h)
	return s.URL, func() {
		_ = e.Drain(context.Background())
		s.Close()
		_ = e.Close()
	}
}

// One program in a fresh sandbox of a server.
func ExampleClient_Run() {
	server, stop := startServer() // "http://127.0.0.1:7463"
	defer stop()
	ctx := context.Background()

	c, err := client.New(server, client.WithKey("pfk_example"))
	if err != nil {
		panic(err)
	}
	defer c.Close()
	result, err := c.Run(ctx, sandbox.Spec{Language: "sh", Code: "echo $((6*7))"}, client.RunOptions{Stdout: os.Stdout})
	if err != nil {
		panic(err) // nothing was run
	}
	fmt.Println(result.Status, result.Cause.Kind)
	// Output:
	// 42
	// succeeded exited
}

// A sandbox that stays: files go in, a command runs, files come out.
func ExampleClient_Create() {
	server, stop := startServer()
	defer stop()
	ctx := context.Background()

	c, err := client.New(server, client.WithKey("pfk_example"))
	if err != nil {
		panic(err)
	}
	defer c.Close()
	box, err := c.Create(ctx, sandbox.Create{TTLMS: 60_000})
	if err != nil {
		panic(err)
	}
	defer box.Destroy(ctx)
	if err := box.WriteFile(ctx, "greeting.txt", 0, -1, strings.NewReader("hello\n")); err != nil {
		panic(err)
	}
	p, err := box.Exec(ctx, sandbox.Command{Args: []string{"cat"}}, client.ExecOptions{
		Stdin: strings.NewReader("typed\n"), Stdout: os.Stdout,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Status, *p.ExitCode)
	if _, err := box.ReadFile(ctx, "greeting.txt", 0, -1, os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// typed
	// succeeded 0
	// hello
}

// A command in the background, read later from where one was.
func ExampleProcess_Output() {
	server, stop := startServer()
	defer stop()
	ctx := context.Background()

	c, err := client.New(server, client.WithKey("pfk_example"))
	if err != nil {
		panic(err)
	}
	defer c.Close()
	box, err := c.Create(ctx, sandbox.Create{})
	if err != nil {
		panic(err)
	}
	defer box.Destroy(ctx)
	p, err := box.Start(ctx, sandbox.Command{Shell: "echo one; echo two; echo three"})
	if err != nil {
		panic(err)
	}
	if _, err := p.Wait(ctx); err != nil {
		panic(err)
	}
	var out bytes.Buffer
	end, err := p.Output(ctx, client.OutputOptions{Stdout: &out, StdoutOffset: 4}) // "one\n" was read before
	if err != nil {
		panic(err)
	}
	fmt.Print(out.String())
	fmt.Println(end.Running, end.StdoutBytes)
	// Output:
	// two
	// three
	// false 14
}
