// Package zygote has what there is of warm interpreters: interpreters that are started
// before the program comes, with its modules loaded, and have one program each.
//
// There are three kinds. One is started in the sandbox in which it waits
// (language.Language.Wait). One is forked from a zygote, an interpreter that
// has loaded its modules, never runs anybody's program, and is copied with fork(2) for
// each one (language.Language.Zygote). One is copied together with the machine in which it
// waits (language.Language.Copied). All take their program in the same way: see
// Handover.
//
// What lies where:
//
//   - This package has the protocol between the host and a zygote (protocol.go,
//     confinement.go; link.go is the host's end), the handover of a program (handover.go),
//     and the inner side of both: the files in the folder inside, which run in the sandbox.
//   - Package supervisor keeps a pool's zygote alive. Package warm has a single interpreter,
//     started or forked, from its start until its program runs.
//   - Package driver has the contract of drivers that have zygotes. Package native
//     makes a zygote's machine and its children's with the kernel's means.
//   - Package pool of the engine has the pools.
//   - Package walker has the machine code that a zygote walks between two forks.
//   - Package interpreter has the harness that runs the program in the end, warm or cold.
//
// # A zygote and its children
//
// A zygote (pinfold_zygote.py) lives in a machine of its own, without privilege and
// without a network. It loads its modules and rehearses the life of a child, so that
// nothing is compiled or cached for the first time in a child. From then on it
// runs no Python: each page that it wrote to would be copied for each child. It walks a
// table of system calls (pinfold_loop.py, pinfold_syscalls.py).
//
// For each run the host makes a machine and asks for a child in it. The zygote makes an
// intermediate process, which shares the zygote's memory while the zygote waits for it,
// as after vfork(2). That one enters the machine and forks, through the C library, so that
// libraries take notice; its child is born in the machine. The child confines itself
// (Confinement), says that it is ready, returns to Python, and waits for its program on
// its standard input.
//
// This package speaks to no kernel. What comes from inside is data that it checks; it
// trusts none of it.
package zygote
