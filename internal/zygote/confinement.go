package zygote

// Confinement is what a child does to itself once it is in its machine's namespaces:
// all that the driver's table of system calls and the agent do to a program that is
// started. The driver fills it in; pinfold_loop.py makes system calls of it.
type Confinement struct {
	Joins      int         `json:"joins"`      // how many files come with each request by which its machine's cgroup is joined
	Namespaces int         `json:"namespaces"` // of the machine, to enter before the fork, as setns(2) takes them
	TimeNS     int         `json:"time_ns"`    // to enter after it, 0 for none
	Home       string      `json:"home"`       // the working directory
	UID        int         `json:"uid"`
	GID        int         `json:"gid"`
	Rlimits    [][2]uint64 `json:"rlimits"`  // Linux's number of the resource, and the limit, soft and hard
	Landlock   *Landlock   `json:"landlock"` // nil for none
	Filter     *Filter     `json:"filter"`   // nil for none
}

// Landlock is a set of rules about files.
type Landlock struct {
	Ruleset Hex            `json:"ruleset"` // struct landlock_ruleset_attr
	Trees   []LandlockTree `json:"trees"`
	Flags   uintptr        `json:"flags"` // of landlock_restrict_self(2)
}

// LandlockTree is what may be done below a path.
type LandlockTree struct {
	Path   string `json:"path"`
	Rights Hex    `json:"rights"` // struct landlock_path_beneath_attr, without the descriptor
}

// Filter is a filter of system calls.
type Filter struct {
	Program Hex     `json:"program"` // struct sock_filter, one behind the other
	Flags   uintptr `json:"flags"`   // of seccomp(2)
	Listens bool    `json:"listens"` // the call returns a listener, which comes with Ready
}
