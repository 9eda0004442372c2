package config

import (
	"cmp"
	"os"
)

// Variables that name what Found does not find by itself.
const (
	RunscEnv  = "PINFOLD_RUNSC"  // gVisor's runsc
	KernelEnv = "PINFOLD_KERNEL" // a kernel for virtual machines, whose modules are beside it or the host's
)

// Found are the drivers of a process that has no configuration: those that need nothing but
// programs of this host's. Whether they are there the drivers find out.
func Found() Drivers {
	return Drivers{
		GVisor: GVisor{Runsc: cmp.Or(os.Getenv(RunscEnv), "runsc")},
		QEMU:   QEMU{Enabled: true, Kernel: os.Getenv(KernelEnv)},
	}
}
