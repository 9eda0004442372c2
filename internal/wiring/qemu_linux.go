//go:build !lean

package wiring

import (
	"path/filepath"

	"pinfold/internal/agentbin"
	"pinfold/internal/config"
	"pinfold/internal/driver"
	"pinfold/internal/driver/qemu"
)

// machines is the driver of virtual machines, where it is enabled.
func machines(c *config.Config) []driver.Driver {
	q := c.Drivers.QEMU
	if !q.Enabled {
		return nil
	}
	return []driver.Driver{qemu.New(qemu.Options{
		Program: q.Program, Kernel: q.Kernel, Modules: q.Modules, CacheDir: filepath.Join(c.State, "machines"),
		Agent: agentbin.Open, Warden: agentbin.Warden,
	})}
}
