package sandbox

// MachineSpec is what a machine is made from: the part of a request (of a run, a living
// sandbox, a pool) that a driver has to do with.
type MachineSpec struct {
	Template string
	Driver   string // the name of one, or DriverAuto
	Limits   Limits // complete: no field is zero
	Network  string
	Mounts   []Mount
	Require  []string // features that must be enforced
}

// Machine returns what the machine of a run is made from. s must have its defaults.
func (s Spec) Machine() MachineSpec {
	return MachineSpec{Template: s.Template, Driver: s.Driver, Limits: s.Limits, Network: s.Network, Mounts: s.Mounts, Require: s.Require}
}

// Machine returns what a living sandbox's machine is made from. c must have its
// defaults.
func (c Create) Machine() MachineSpec {
	return MachineSpec{Template: c.Template, Driver: c.Driver, Limits: c.Limits.WithDefaults(), Network: c.Network, Mounts: c.Mounts, Require: c.Require}
}

// Machine returns what a pool's machines are made from: whoever gets one may require
// more of it, and then it must have that. p must have its defaults.
func (p PoolSpec) Machine() MachineSpec {
	return MachineSpec{Template: p.Template, Driver: p.Driver, Limits: p.Limits.WithDefaults(), Network: NetworkNone}
}
