package engine

import (
	"bytes"
	"context"
	"testing"
	"testing/fstest"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/runs"
	"pinfold/internal/image"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// hostFiles is a host with a shell and a compiler.
func hostFiles() fstest.MapFS {
	program := &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	return fstest.MapFS{"usr/bin/sh": program, "usr/bin/gcc": program}
}

// newEngine makes an engine over machines of memory. When the test ends nothing of
// them may be left.
func newEngine(t *testing.T, script func(p driver.Plan) fake.Script, change ...func(*Options)) (*Engine, *fake.Driver) {
	t.Helper()
	ledger.CheckSelf(t)
	e, d := openEngine(t, script, change...)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := d.Living(); n > 0 {
			t.Errorf("%d machines live", n)
		}
	})
	return e, d
}

// openEngine makes an engine that the test closes.
func openEngine(t *testing.T, script func(p driver.Plan) fake.Script, change ...func(*Options)) (*Engine, *fake.Driver) {
	t.Helper()
	host := hostFiles()
	template, err := image.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	d := fake.New(fake.Options{Script: script})
	o := Options{
		Drivers:  []driver.Driver{d},
		Template: func(string) (image.Template, error) { return template, nil },
		Host:     host,
	}
	for _, f := range change {
		f(&o)
	}
	return New(o), d
}

// always gives every machine the same script.
func always(s fake.Script) func(driver.Plan) fake.Script {
	return func(driver.Plan) fake.Script { return s }
}

// shell is a request whose program is scripted.
func shell(l sandbox.Limits) runs.Request {
	return runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "scripted", Limits: l}}
}

// run runs a request that must give a result within some seconds.
func run(t *testing.T, e *Engine, req runs.Request) *sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := e.Run(ctx, req)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	if ctx.Err() != nil {
		t.Fatal("Run hung")
	}
	return r
}

// exits returns a program that ends so at once.
func exits(e fake.Exit) func(*fake.Process) fake.Exit {
	return func(*fake.Process) fake.Exit { return e }
}

// sleeps is a program that goes on until it is killed.
func sleeps(p *fake.Process) fake.Exit {
	p.Sleep(time.Hour)
	return fake.Exit{}
}

// says returns a program that writes to both streams.
func says(stdout, stderr string) func(*fake.Process) fake.Exit {
	return func(p *fake.Process) fake.Exit {
		_, _ = p.Stdout.Write([]byte(stdout))
		_, _ = p.Stderr.Write([]byte(stderr))
		return fake.Exit{}
	}
}

// after gives the counters once the machine has lived for a while, and zeros
// before.
func after(d time.Duration, u driver.Usage) func(time.Duration) driver.Usage {
	return func(life time.Duration) driver.Usage {
		if life < d {
			return driver.Usage{}
		}
		return u
	}
}

// zeros is that many bytes.
func zeros(n int) []byte { return bytes.Repeat([]byte{'0'}, n) }
