// Package cgroup gives each sandbox one control group: the kernel's means to
// limit and to measure a tree of processes, and to end all of it at once.
//
// Detect finds out, without changing anything, which version of the interface
// this host has (1, 2, or both side by side), where we may make groups, and
// which controllers can be used there, with the reason and the fix for each
// that cannot. Hierarchy.New then makes a Group. All groups lie in one
// directory named "pinfold" below the place that Detect chose:
//
//	version 2   <our delegated cgroup>/pinfold/<name>, or, as root outside a
//	            delegation, /sys/fs/cgroup/pinfold/<name>
//	version 1   <mount of each controller>/pinfold/<name>
//
// A process enters its group without help from here: on version 2 it is born
// there (clone3 with CLONE_INTO_CGROUP and Group.Dir), on version 1 it writes
// "0" to each of Group.JoinFiles, which for a single-threaded process avoids
// the kernel's global thread-group lock.
//
// On version 2 a cgroup that passes controllers on must not hold processes
// itself. When our own cgroup is delegated to us and we are alone in it, the
// first New moves this process into a leaf named "pinfold-host"; it stays there
// until it ends. Processes that are not ours are never moved. Controllers that
// New switches on for a parent stay on: others may rely on them by then.
//
// The package does not decide: it enforces the limits it is given or fails.
// It does not talk to systemd, does not mount anything and knows nothing about
// sandboxes beyond their names.
//
// Facts about files are from the kernel's Documentation/admin-guide/cgroup-v2.rst
// and cgroup-v1/, and were seen on Linux 6.1 and 6.18.
package cgroup
