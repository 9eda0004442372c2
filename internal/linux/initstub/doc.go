// Package initstub is a program of some five hundred bytes that is process 1 of a
// sandbox (init) until somebody needs the agent. Most sandboxes whose program was forked
// never do, and the start of the agent would be a good part of what they cost.
//
// It reads bytes from its connection to the host (ConnFD), one at a time, and
// nothing else ever:
//
//   - BecomeAgent: it becomes the agent (AgentFD), with its own arguments and environment.
//     The next byte belongs to the agent.
//   - KillGuest: it kills every other process that it can see, as process 1 those of
//     its pid namespace. When they are gone it writes the byte back.
//   - The end of the connection, or anything else: it ends, and the sandbox with it.
//
// It expects to be started with SIGCHLD ignored, so that the kernel collects
// orphans, and with one argument. Like the agent it lives beside hostile processes:
// it cannot be traced, has no memory but its stack, which holds no secret, calls
// nothing, and handles no signal, so that as process 1 none reaches it.
package initstub

// What the host says, and where the program finds what it needs.
const (
	BecomeAgent = 'w'
	KillGuest   = 'e'

	ConnFD  = 3
	AgentFD = 4
)

// Tasks is how many tasks the program is.
const Tasks = 1
