package wiring

import (
	"context"
	"io/fs"
	"sync"

	"pinfold/internal/agentbin"
	"pinfold/internal/driver"
	"pinfold/internal/driver/native"
	"pinfold/internal/driver/process"
	"pinfold/internal/engine"
	"pinfold/internal/engine/execution"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// NewEngine returns an engine with the drivers and templates of this program, and
// everything else from o. The engine owns its drivers; the caller closes it.
func NewEngine(o engine.Options, p Parts) (*engine.Engine, error) {
	source := agentbin.Source{Open: agentbin.Open, File: agentbin.File}
	if p.Agent != "" {
		var err error
		if source, err = agentbin.At(p.Agent); err != nil {
			return nil, err
		}
	}
	o.Host, o.Scan, o.Gates = image.HostTree(), scanner(), newGate
	o.Template, o.Templates, o.Home = templates(o.Host, p.Images)
	o.Drivers = append([]driver.Driver{ // in the order in which they are taken
		native.New(native.Options{Agent: source.Open, AgentFile: source.File}),
		process.New(process.Options{Agent: source.Open}),
	}, p.Drivers...)
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

// templates returns what describes a template by its name, what names them all, and what
// gives the content of homes. The host is looked at once.
func templates(host fs.FS, dir string) (get func(string) (image.Template, error), names func(context.Context) ([]string, error), home execution.Homes) {
	hostTemplate := sync.OnceValues(func() (image.Template, error) { return image.Host(host) })
	others := &images{dir: dir}
	get = func(name string) (image.Template, error) {
		if name == sandbox.TemplateHost {
			return hostTemplate()
		}
		return others.get(name)
	}
	return get, func(ctx context.Context) ([]string, error) {
		all, err := others.names(ctx)
		return append([]string{sandbox.TemplateHost}, all...), err
	}, others.home
}
