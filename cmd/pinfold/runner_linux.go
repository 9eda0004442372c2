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

// newRunner makes the engine with the drivers that this program has.
func newRunner(context.Context) (cli.Runner, error) {
	host := os.DirFS("/")
	template := templates(host)
	return engine.New(engine.Options{
		Drivers:  []driver.Driver{native.New(native.Options{Agent: agentbin.Open, Template: template})},
		Template: template,
		Host:     host,
	}), nil
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
