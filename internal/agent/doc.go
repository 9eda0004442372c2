// Package agent is the guest half of Pinfold: the first process of every
// sandbox. It takes requests from the host over one connection, starts
// processes (on a terminal where one is asked for), streams what they read and
// write, moves and watches files, connects to servers in the sandbox, and reaps
// everything that dies. It decides nothing: limits and causes are the host's.
//
// It lives beside hostile processes of (often) the same user. So it holds no
// secret, cannot be traced, answers to the connection only, and ends when the
// connection ends, which as pid 1 takes the sandbox with it. Where it listens (Serve) it
// has the secret of its own stream, and waits for the next host instead. Whatever it says
// is checked again by package guest.
//
// When the host's Hello says switch_user, the agent needs these capabilities
// in the sandbox's user namespace, and no process that it starts keeps any of
// them: SETUID, SETGID, SETPCAP, KILL, CHOWN, FOWNER, FSETID, DAC_OVERRIDE, SYS_NICE, and
// NET_BIND_SERVICE where it opens doors.
//
// # Threads
//
// A guest may use up the sandbox's processes at any moment, and the Go runtime
// dies when it cannot make a thread. So the agent needs none more than the
// runtime has made before main: its monitor, and two that take turns in running
// goroutines on one P (wire.MaxTasks says how many a driver has to allow).
//
// The runtime wants another thread when a system call of which it knows lasts. So
// it is told of none that could: streams are read and written without waiting
// (see pollFile); everything about files goes through the functions of
// calls_unsafe.go, for which all of the agent waits, so that a slow disk of the
// host's makes it slow; and the end of a child is a signal, whose handler writes
// to an eventfd.
package agent
