package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"pinfold/internal/agentbin"
	"pinfold/internal/cli"
	"pinfold/internal/driver"
	"pinfold/internal/driver/native"
	"pinfold/internal/engine"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// runner returns what makes the engine. For a command line that runs a program,
// the engine looks at the host while the command line is still being read.
func runner(ctx context.Context, args []string) func(context.Context) (cli.Runner, error) {
	e := newEngine()
	if len(args) > 0 && args[0] == "run" {
		go e.Warm(ctx)
	}
	return func(context.Context) (cli.Runner, error) { return e, nil }
}

// newEngine makes the engine with the drivers that this program has.
func newEngine() *engine.Engine {
	host := os.DirFS("/")
	template := templates(host)
	return engine.New(engine.Options{
		Drivers:  []driver.Driver{native.New(native.Options{Agent: agentbin.Open, AgentFile: agentbin.File, Template: template})},
		Template: template,
		Host:     host,
	})
}

// templates returns the templates by name. The host is looked at once.
func templates(host fs.FS) func(string) (image.Template, error) {
	hostTemplate := sync.OnceValues(func() (image.Template, error) { return image.Host(host) })
	return func(name string) (image.Template, error) {
		if name == sandbox.TemplateHost {
			return hostTemplate()
		}
		return image.Template{}, &sandbox.Error{
			Code: sandbox.CodeTemplateUnknown, Field: "template",
			Message: fmt.Sprintf("no template \"%s\"", sandbox.SafeText(name, 60)), Hint: `the only template is "host"`,
		}
	}
}
