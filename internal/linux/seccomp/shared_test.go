package seccomp

import "testing"

// Where the namespaces are the host's, what only they keep apart is refused; where the user
// is too, so is what no other mechanism looks at.
func TestSharedFilter(t *testing.T) {
	const root, user, sockets = 1, 2, 4 // filters that refuse
	options := map[int]Options{
		root: {Shared: &Shared{}}, user: {Shared: &Shared{Identity: true}}, sockets: {Shared: &Shared{Sockets: true}},
	}
	const all = root | user | sockets
	for _, test := range []struct {
		what, call string
		args       [6]uint64
		refused    int
	}{
		{"a TCP socket", "socket", [6]uint64{2, 1, 6}, all},
		{"a UNIX socket", "socket", [6]uint64{1, 1}, root | user},
		{"a pair of streams", "socketpair", [6]uint64{1, 1}, 0},
		{"a pair of datagram sockets", "socketpair", [6]uint64{1, 2}, root | user},
		{"shared memory of a key", "shmget", [6]uint64{1}, all},
		{"private shared memory", "shmget", [6]uint64{0}, all},
		{"semaphores", "semget", [6]uint64{0}, all},
		{"a mode by name", "fchmodat", [6]uint64{0xffffff9c, 0x7f0000000000}, user},
		{"a mode of an open file", "fchmod", [6]uint64{3}, 0},
		{"a time by name", "utimensat", [6]uint64{0xffffff9c, 0x7f0000001000}, user},
		{"a time by a name at four gigabytes", "utimensat", [6]uint64{0xffffff9c, 1 << 32}, user},
		{"the time of an open file", "utimensat", [6]uint64{3, 0}, 0},
		{"an attribute by name", "setxattr", [6]uint64{0x7f0000000000}, user},
		{"another's priority", "setpriority", [6]uint64{0, 42}, user},
		{"one's own priority", "setpriority", [6]uint64{0, 0}, 0},
		{"the priority of the group", "setpriority", [6]uint64{1, 0}, user},
		{"the priority of all of the user's", "setpriority", [6]uint64{2, 0}, user},
		{"one's own priority of input and output", "ioprio_set", [6]uint64{1, 0}, 0},
		{"that of the user's", "ioprio_set", [6]uint64{3, 0}, user},
		{"another's processors", "sched_setaffinity", [6]uint64{42}, user},
		{"another's limits", "prlimit64", [6]uint64{42}, all},
		{"a signal", "kill", [6]uint64{42, 9}, 0},
	} {
		for bit, o := range options {
			for _, m := range machines {
				o.Arch = m.name
				got, _, err := evaluate(mustCompile(t, o), callData{nr: m.numbers()[test.call], arch: m.audit, args: test.args})
				if want := test.refused&bit != 0; err != nil || (describe(got) != "allow") != want {
					t.Errorf("%s, %+v: %s: %s, %v", m.name, *o.Shared, test.what, describe(got), err)
				}
			}
		}
	}
}
