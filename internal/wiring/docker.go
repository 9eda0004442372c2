//go:build !lean

package wiring

import (
	"path/filepath"

	"pinfold/internal/agentbin"
	"pinfold/internal/config"
	"pinfold/internal/driver"
	"pinfold/internal/driver/docker"
)

// Configured returns the drivers that a server's configuration adds. Its machines are
// known in the server's directory, where the server that comes after it looks for them.
// The lean program has none of them: their libraries would slow its start.
func Configured(c *config.Config) []driver.Driver {
	d := c.Drivers.Docker
	if d.Image == "" {
		return nil
	}
	return []driver.Driver{docker.New(docker.Options{
		Image: d.Image, Engine: d.Engine, Runtime: d.Runtime,
		StateDir: filepath.Join(c.State, "docker"), Agent: agentbin.Open,
	})}
}
