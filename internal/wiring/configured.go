//go:build !lean

package wiring

import (
	"path/filepath"

	"pinfold/internal/agentbin"
	"pinfold/internal/config"
	"pinfold/internal/driver"
	"pinfold/internal/driver/docker"
	"pinfold/internal/driver/gvisor"
)

// Configured returns the drivers that a server's configuration adds. Machines that outlive it
// are known in the server's directory, where the server that comes after it looks for them.
// The lean program has none of them: their libraries would slow its start.
func Configured(c *config.Config) (all []driver.Driver) {
	if d := c.Drivers.Docker; d.Image != "" {
		state, err := filepath.Abs(c.State) // the engine has another working directory
		if err != nil {
			state = c.State // which the driver then refuses
		}
		all = append(all, docker.New(docker.Options{
			Image: d.Image, Programs: programs(), Engine: d.Engine, Runtime: d.Runtime,
			StateDir: filepath.Join(state, "docker"), Agent: agentbin.Open,
		}))
	}
	if g := c.Drivers.GVisor; g.Runsc != "" {
		all = append(all, gvisor.New(gvisor.Options{Runsc: g.Runsc, Agent: agentbin.Open}))
	}
	return append(all, machines(c)...)
}
