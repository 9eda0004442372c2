package seccomp

// allowed lists the calls that a sandbox may make. What is not named in a
// table is answered with ENOSYS. Those marked * in docs/seccomp.md have
// conditions on their arguments, in table_checks.go.
var allowed = []group{
	{"files: read and write", `read write readv writev pread64 pwrite64 preadv pwritev
		preadv2 pwritev2 lseek sendfile copy_file_range splice tee readahead fadvise64`},
	{"files: open, close, describe", `open openat openat2 creat close close_range dup dup2 dup3
		fcntl flock stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2
		getdents getdents64 readlink readlinkat umask`},
	{"files: make, move, remove", `mkdir mkdirat rmdir rename renameat renameat2 link linkat
		unlink unlinkat symlink symlinkat mknod mknodat truncate ftruncate fallocate`},
	{"files: owner, mode, times, attributes", `chmod fchmod fchmodat fchmodat2 chown fchown
		lchown fchownat utime utimes utimensat futimesat setxattr lsetxattr fsetxattr getxattr
		lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr`},
	{
		"files: to the disk. sync(2) and syncfs(2), which flush what is everybody's, are not here",
		`fsync fdatasync sync_file_range`,
	},
	{"files: watch", `inotify_init inotify_init1 inotify_add_watch inotify_rm_watch`},
	{"working directory", `chdir fchdir getcwd`},
	{"devices and terminals", `ioctl`},
	{"pipes, waiting, events", `pipe pipe2 poll ppoll select pselect6 epoll_create epoll_create1
		epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4
		timerfd_create timerfd_settime timerfd_gettime`},
	{"sockets: of the families and protocols in the conditions", `socket socketpair connect accept
		accept4 bind listen shutdown getsockname getpeername setsockopt getsockopt sendto recvfrom
		sendmsg recvmsg sendmmsg recvmmsg`},
	{"memory", `mmap mprotect munmap mremap brk msync mincore madvise mlock mlock2 munlock mlockall
		munlockall mseal pkey_alloc pkey_free pkey_mprotect map_shadow_stack memfd_create membarrier`},
	{
		"shared memory and semaphores of the sandbox's own IPC namespace (databases use them)",
		`shmget shmat shmdt shmctl semget semop semtimedop semctl`,
	},
	{"processes and threads", `clone fork vfork execve execveat exit exit_group wait4 waitid kill
		tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal getpid getppid
		gettid set_tid_address set_robust_list get_robust_list rseq arch_prctl prctl futex
		restart_syscall`},
	{"sessions and process groups", `setsid getsid setpgid getpgid getpgrp`},
	{
		"users, groups, capabilities: the kernel checks them; the agent drops its own with them",
		`getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid
		setresuid setresgid setfsuid setfsgid setgroups capget capset`,
	},
	{"signals", `rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend
		rt_sigtimedwait sigaltstack pause`},
	{"time: read, wait, alarm; never set", `time gettimeofday clock_gettime clock_getres
		clock_nanosleep nanosleep alarm getitimer setitimer timer_create timer_settime timer_gettime
		timer_getoverrun timer_delete times`},
	{"scheduling: the kernel allows no real-time class without the privilege", `sched_yield
		sched_getaffinity sched_setaffinity sched_getparam sched_setparam sched_getscheduler
		sched_setscheduler sched_getattr sched_setattr sched_get_priority_max
		sched_get_priority_min sched_rr_get_interval getpriority setpriority ioprio_get ioprio_set
		getcpu`},
	{"limits and facts", `getrlimit setrlimit prlimit64 getrusage sysinfo uname personality`},
	{"randomness", `getrandom`},
	{"a program's own sandbox: further filters and rules can only take away", `seccomp
		landlock_create_ruleset landlock_add_rule landlock_restrict_self`},
}
