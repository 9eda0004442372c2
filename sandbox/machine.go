package sandbox

// MachineSpec is what a machine is made from: the part of a request (of a run, a living
// sandbox, a pool) that a driver has to do with.
type MachineSpec struct {
	Template string
	Driver   string // the name of one, or DriverAuto
	// Isolation is the least level that is accepted; "" is LevelNamespace, or what the
	// named driver has.
	Isolation string
	Limits    Limits // complete: no field is zero
	Network   Network
	Mounts    []Mount
	Kept      int      // of the Mounts, at the end: those that the engine keeps, of packages
	Require   []string // features that must be enforced
}

// Least is the least level of isolation that is accepted; "" is any.
func (m MachineSpec) Least() string {
	if m.Isolation == "" && m.Driver == DriverAuto {
		return LevelNamespace
	}
	return m.Isolation
}

// Machine returns what the machine of a run is made from. s must have its defaults.
func (s Spec) Machine() MachineSpec {
	return MachineSpec{Template: s.Template, Driver: s.Driver, Isolation: s.Isolation, Limits: s.Limits, Network: s.Network, Mounts: s.Mounts, Require: s.Require}
}

// Machine returns what a living sandbox's machine is made from. c must have its
// defaults.
func (c Create) Machine() MachineSpec {
	return MachineSpec{Template: c.Template, Driver: c.Driver, Isolation: c.Isolation, Limits: c.Limits.WithDefaults(), Network: c.Network, Mounts: c.Mounts, Require: c.Require}
}

// Machine returns what a pool's machines are made from: whoever gets one may require
// more of it, and then it must have that. p must have its defaults.
func (p PoolSpec) Machine() MachineSpec {
	return MachineSpec{Template: p.Template, Driver: p.Driver, Limits: p.Limits.WithDefaults(), Network: Network{Mode: NetworkNone}}
}
