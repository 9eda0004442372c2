package seccomp

// refused lists the calls that are answered with EPERM and reported by name.
// Each is a known way to attack a kernel or a neighbour, and some benign
// program tries it and copes with EPERM; or a person who is refused deserves
// to read which call it was.
var refused = []group{
	{"other processes' memory and descriptors", `ptrace process_vm_readv process_vm_writev
		process_madvise process_mrelease kcmp pidfd_getfd`},
	{"namespaces: a new one opens kernel code that only root reaches otherwise", `unshare setns`},
	{"mounts, old interface and new", `mount umount2 pivot_root chroot fsopen fsconfig fsmount
		fspick move_mount open_tree open_tree_attr mount_setattr`},
	{"kernel programming and tracing", `bpf perf_event_open userfaultfd lookup_dcookie`},
	{"keyrings: not namespaced in full", `add_key request_key keyctl`},
	{"file handles, file watching for the whole system, quotas", `name_to_handle_at fanotify_init
		fanotify_mark quotactl quotactl_fd`},
	{"the clock", `settimeofday clock_settime adjtimex clock_adjtime`},
	{"the machine: kernel log, names, terminals, segments", `syslog sethostname setdomainname vhangup
		modify_ldt`},
	{"pages given to the kernel or hidden from it", `vmsplice memfd_secret`},
	{"message queues: kernel memory of chosen size and content, no user in our corpus", `msgget msgsnd
		msgrcv msgctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`},
}

// killed lists the calls that end the process: they act on the whole machine,
// or (open_by_handle_at) exist for escaping, and no program that belongs in a
// sandbox makes them, not even to see whether they work.
var killed = []group{
	{"kernel modules", `init_module finit_module delete_module`},
	{"another kernel", `kexec_load kexec_file_load`},
	{"the machine's power, swap and accounting", `reboot swapon swapoff acct`},
	{"hardware ports", `iopl ioperm`},
	{"files by handle, past every mount and path check", `open_by_handle_at`},
}

// unavailable lists the calls that we know, do not want, and answer with
// ENOSYS as for an unknown call: the programs that use them ask first and have
// another way. They are listed so that a test can tell a call that somebody
// decided about from one that is new.
var unavailable = []group{
	{"clone3 keeps its flags in memory, where a filter cannot look; C libraries fall back to clone", `clone3`},
	{"io_uring: makes calls that no filter sees; runtimes probe for it", `io_uring_setup
		io_uring_enter io_uring_register`},
	{"asynchronous I/O, old interface", `io_setup io_destroy io_getevents io_pgetevents io_submit io_cancel`},
	{"memory placement: the sandbox looks like a machine without NUMA", `mbind get_mempolicy
		set_mempolicy set_mempolicy_home_node migrate_pages move_pages`},
	{"sync flushes every disk of the host; it cannot fail, so nobody notices. syncfs flushes all that one holds", `sync syncfs`},
	{"what a page cache holds: tells neighbours apart", `cachestat`},
	{"lists of mounts and namespaces, security modules", `statmount listmount listns
		lsm_get_self_attr lsm_set_self_attr lsm_list_modules`},
	{"newer variants whose users fall back", `futex_waitv futex_wake futex_wait futex_requeue
		setxattrat getxattrat listxattrat removexattrat file_getattr file_setattr rseq_slice_yield`},
	{"tracing trampolines", `uretprobe uprobe`},
	{"obsolete", `remap_file_pages ustat sysfs _sysctl uselib set_thread_area get_thread_area
		nfsservctl`},
	{"numbers without a call behind them", `create_module get_kernel_syms query_module getpmsg putpmsg
		afs_syscall tuxcall security epoll_ctl_old epoll_wait_old vserver`},
}
