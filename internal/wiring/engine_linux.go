package wiring

import (
	"fmt"
	"io/fs"
	"sync"

	"pinfold/internal/agentbin"
	"pinfold/internal/driver"
	"pinfold/internal/driver/native"
	"pinfold/internal/driver/process"
	"pinfold/internal/engine"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// NewEngine returns an engine with the drivers and templates of this program, then
// more drivers, and everything else from o. Agent names the agent's executable; empty means
// the one that this program carries or has beside itself. The engine owns its
// drivers; the caller closes it.
func NewEngine(o engine.Options, agent string, more ...driver.Driver) (*engine.Engine, error) {
	source := agentbin.Source{Open: agentbin.Open, File: agentbin.File}
	if agent != "" {
		var err error
		if source, err = agentbin.At(agent); err != nil {
			return nil, err
		}
	}
	o.Host = image.HostTree()
	o.Template = templates(o.Host)
	o.Drivers = append([]driver.Driver{ // the strongest first
		native.New(native.Options{Agent: source.Open, AgentFile: source.File}),
		process.New(process.Options{Agent: source.Open}),
	}, more...)
	return engine.New(o), nil
}

// NewDriver returns the driver of this program by itself, without an engine,
// for whoever measures it. The caller closes it.
func NewDriver() (driver.Driver, error) {
	if err := CheckAgent(""); err != nil {
		return nil, err
	}
	return native.New(native.Options{Agent: agentbin.Open, AgentFile: agentbin.File}), nil
}

// AgentSize is how many bytes the agent's executable has.
func AgentSize() (int64, error) {
	agent, err := agentbin.Open()
	return int64(len(agent)), err
}

// CheckAgent says whether there is an agent for NewEngine, before anything is
// opened. The error is of code resource_unavailable.
func CheckAgent(agent string) error {
	if agent != "" {
		_, err := agentbin.At(agent)
		return err
	}
	_, err := agentbin.Open()
	return err
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
