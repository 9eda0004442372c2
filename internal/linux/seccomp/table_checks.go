package seccomp

// Constants of the kernel's headers (include/uapi). They are the same on amd64
// and arm64; a test compares them with x/sys/unix where that has them.
const (
	afUNIX, afINET, afINET6 = 1, 2, 10

	sockSTREAM, sockDGRAM, sockSEQPACKET = 1, 2, 5
	sockTypeMask                         = 0xf // the bits above are SOCK_NONBLOCK, SOCK_CLOEXEC

	protoICMP, protoTCP, protoUDP, protoICMPV6 = 1, 6, 17, 58

	// CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
	cloneNamespaces = 0x80 | 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000

	tiocSTI, tiocLINUX, tiocSETD, tiocCONS = 0x5412, 0x541c, 0x5423, 0x541d

	// FIBMAP, FS_IOC_FIEMAP.
	fiBMAP, fsIocFIEMAP = 1, 0xc020660b

	cloneParent = 0x8000

	fSETLEASE, fSETDELEG = 1024, 1040

	mapHUGETLB, mfdHUGETLB, shmHUGETLB = 0x40000, 4, 0o4000

	fadvDONTNEED = 4
	rwfNOWAIT    = 8

	msASYNC, msSYNC = 1, 4
	pageOffset      = 4096 - 1 // pages are never smaller

	minusOne = 0xffffffff

	modeSetID = 0o6000 // S_ISUID, S_ISGID
	// O_CREAT, and what O_TMPFILE has that no other flag has.
	openMakes = 0o100 | 0o20000000

	modeTypeMask                    = 0o170000
	modeFIFO, modeRegular, modeSock = 0o010000, 0o100000, 0o140000

	filterFlagNewListener = 8
)

// conditions says with which arguments an allowed call is allowed.
var conditions = map[string][]check{
	"clone": {{
		arg: 0, mask: cloneNamespaces, in: []uint32{0}, otherwise: refuse,
		why: "no new namespaces",
	}, {
		arg: 0, mask: cloneParent, in: []uint32{0}, otherwise: refuse,
		why: "no children for somebody else",
	}},
	"socket":     socketChecks,
	"socketpair": socketpairChecks,
	"setsockopt": {
		{at: &place{1, solSOCKET}, arg: 2, notIn: []uint32{soAttachFilter, soAttachBPF, soAttachReuseportCBPF, soAttachReuseportEBPF}, otherwise: errno(eNOPROTOOPT), why: noFilters},
		{at: &place{1, solIP}, arg: 2, in: ipOptions, otherwise: errno(eNOPROTOOPT), why: noDropping},
		{at: &place{1, solIPV6}, arg: 2, in: ipv6Options, otherwise: errno(eNOPROTOOPT), why: noDropping},
		{at: &place{1, protoTCP}, arg: 2, in: tcpOptions, otherwise: errno(eNOPROTOOPT), why: noDropping + "; no protocols on top of TCP inside the kernel (TLS, SMC, MPTCP)"},
	},
	"ioctl": {{
		arg: 1, notIn: []uint32{tiocSTI, tiocLINUX, tiocSETD, tiocCONS}, otherwise: refuse,
		why: "nothing that types for the user of a terminal or changes its driver",
	}, {
		arg: 1, notIn: []uint32{fiBMAP, fsIocFIEMAP}, otherwise: errno(eOPNOTSUPP),
		why: "not where on the host's disk a file lies",
	}},
	"fcntl": {{
		arg: 1, notIn: []uint32{fSETLEASE, fSETDELEG}, otherwise: errno(eINVAL),
		why: "no leases: whoever of the host's opens the file would wait for their end",
	}},
	"fadvise64": {{
		arg: 3, notIn: []uint32{fadvDONTNEED}, otherwise: errno(0),
		why: "what others read too stays in memory; the sandbox's own files are nowhere else",
	}},
	"msync": {
		{arg: 0, mask: pageOffset, in: []uint32{0}, otherwise: allow, why: "what is no page, the kernel refuses"},
		{arg: 2, notIn: []uint32{msASYNC | msSYNC}, otherwise: allow, why: "both at once, the kernel refuses"},
		{
			arg: 2, mask: msSYNC, in: []uint32{0}, otherwise: errno(0),
			why: "what a program can write is in memory; of what it can only read, the host's disk would be flushed",
		},
	},
	"preadv2":      {noWaitCheck},
	"pwritev2":     {noWaitCheck},
	"mmap":         {{arg: 3, mask: mapHUGETLB, in: []uint32{0}, otherwise: errno(eNOMEM), why: noHugePages}},
	"shmget":       {{arg: 2, mask: shmHUGETLB, in: []uint32{0}, otherwise: errno(eNOMEM), why: noHugePages}},
	"memfd_create": {{arg: 1, mask: mfdHUGETLB, in: []uint32{0}, otherwise: errno(eNOMEM), why: noHugePages}},
	"prlimit64": {
		{arg: 0, notIn: []uint32{minusOne}, otherwise: errno(eSRCH), why: "no process"},
		{arg: 0, in: []uint32{0}, otherwise: refuse, why: "one's own limits, not the agent's"},
	},
	"personality": {{
		arg: 0, in: []uint32{0, 0xffffffff}, otherwise: refuse,
		why: "read it, or set plain Linux",
	}},
	"mknod":   {deviceCheck(1)},
	"mknodat": {deviceCheck(2)},
	"seccomp": {{
		arg: 1, mask: filterFlagNewListener, in: []uint32{0}, otherwise: refuse,
		why: "further filters, but no listener of their own",
	}},
	"prctl": {{
		arg: 0, in: prctlOptions, otherwise: errno(eINVAL),
		why: "options that concern the caller alone; PR_SET_MM and core scheduling are not among them",
	}},
}

// mountConditions take the place of those of conditions in a sandbox that may write to
// a directory of the host's. What it leaves there must be of no danger to who runs it:
// nothing may be set-user-id or set-group-id. (openat2, whose mode is in memory, the
// agent keeps for itself there.) And what it writes there, it may wait for.
var mountConditions = map[string][]check{
	"msync":     nil,
	"chmod":     {setIDCheck(1)},
	"fchmod":    {setIDCheck(1)},
	"fchmodat":  {setIDCheck(2)},
	"fchmodat2": {setIDCheck(2)},
	"creat":     {setIDCheck(1)},
	"open":      {makesCheck(1), setIDCheck(2)},
	"openat":    {makesCheck(2), setIDCheck(3)},
	"mknod":     {deviceCheck(1), setIDCheck(1)},
	"mknodat":   {deviceCheck(2), setIDCheck(2)},
}

func setIDCheck(arg int) check {
	return check{arg: arg, mask: modeSetID, in: []uint32{0}, otherwise: refuse, why: "no set-user-id or set-group-id files for the host"}
}

func makesCheck(arg int) check {
	return check{arg: arg, mask: openMakes, notIn: []uint32{0}, otherwise: allow, why: "only what makes a file has a mode"}
}

const (
	noFilters  = "what the kernel compiles of them is memory that the whole host shares, and they drop what ends a connection"
	noDropping = "only options with which no end of a connection can have what ends it dropped: that would stay on the host when the sandbox is gone"
)

// The options of sockets by their level; include/uapi/linux/in.h, in6.h, tcp.h.
const (
	solIP, solSOCKET, solIPV6 = 0, 1, 41

	soAttachFilter, soAttachBPF, soAttachReuseportCBPF, soAttachReuseportEBPF = 26, 50, 51, 52
)

// ipOptions leave out IP_OPTIONS (source routes) and IP_MINTTL, and what needs privileges.
var ipOptions = []uint32{
	1, 2, 3, // IP_TOS, IP_TTL, IP_HDRINCL
	6, 7, 8, 10, 11, 12, 13, // IP_RECVOPTS, RETOPTS, PKTINFO, MTU_DISCOVER, RECVERR, RECVTTL, RECVTOS
	14, 15, 18, 20, 22, 23, 24, 25, // IP_MTU, FREEBIND, PASSSEC, RECVORIGDSTADDR, NODEFRAG, CHECKSUM, BIND_ADDRESS_NO_PORT, RECVFRAGSIZE
	32, 33, 34, 35, 36, 37, 38, 39, 40, 41, // IP_MULTICAST_IF to IP_MSFILTER
	42, 43, 44, 45, 46, 47, 48, 49, 50, 51, // MCAST_JOIN_GROUP to IP_MULTICAST_ALL, UNICAST_IF, LOCAL_PORT_RANGE
}

// ipv6Options leave out the headers of options and routes, and IPV6_MINHOPCOUNT.
var ipv6Options = []uint32{
	1, 2, 3, 4, 5, 7, 8, // IPV6_ADDRFORM, 2292PKTINFO, 2292HOPOPTS, 2292DSTOPTS, 2292RTHDR, CHECKSUM, 2292HOPLIMIT
	16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, // IPV6_UNICAST_HOPS to IPV6_MULTICAST_ALL, without ROUTER_ALERT
	32, 33, // IPV6_FLOWLABEL_MGR, FLOWINFO_SEND
	42, 43, 44, 45, 46, 47, 48, // MCAST_JOIN_GROUP to MCAST_MSFILTER
	49, 50, 51, 52, 53, 56, 58, 60, 61, 62, 63, // IPV6_RECVPKTINFO to IPV6_USE_MIN_MTU: what is received, PKTINFO, HOPLIMIT, PATHMTU, DONTFRAG
	66, 67, 70, 72, 74, 76, 77, 78, // IPV6_RECVTCLASS, TCLASS, AUTOFLOWLABEL, ADDR_PREFERENCES, RECVORIGDSTADDR, UNICAST_IF, RECVFRAGSIZE, FREEBIND
}

// tcpOptions leave out keys (TCP_MD5SIG, TCP_AO), TCP_REPAIR, TCP_ULP and TCP_TX_DELAY.
var tcpOptions = []uint32{
	1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 18, // TCP_NODELAY to TCP_CONGESTION, THIN_LINEAR_TIMEOUTS, THIN_DUPACK, USER_TIMEOUT
	23, 24, 25, 26, 27, 28, 30, 33, 34, 35, 36, // TCP_FASTOPEN, TIMESTAMP, NOTSENT_LOWAT, CC_INFO, SAVE_SYN, SAVED_SYN, FASTOPEN_CONNECT, FASTOPEN_KEY, FASTOPEN_NO_COOKIE, ZEROCOPY_RECEIVE, INQ
	44, 45, 46, // TCP_RTO_MAX_MS, TCP_RTO_MIN_US, TCP_DELACK_MAX_US
}

// noWaitCheck is a second layer: the files that are shown answer so by themselves.
var noWaitCheck = check{
	arg: 5, mask: rwfNOWAIT, in: []uint32{0}, otherwise: errno(eOPNOTSUPP),
	why: "not what the host has in memory",
}

const noHugePages = "reserved huge pages are the host's, and no limit counts them"

// familyCheck comes first: an unwanted family looks like one that the kernel
// was built without, whatever the type.
func familyCheck(families ...uint32) check {
	return check{arg: 0, in: families, otherwise: errno(eAFNOSUPPORT), why: "address families"}
}

var typeCheck = check{
	arg: 1, mask: sockTypeMask, in: []uint32{sockSTREAM, sockDGRAM, sockSEQPACKET}, otherwise: refuse,
	why: "no raw sockets",
}

// socketChecks leave netlink out. Name resolution, servers and clients do
// without it in every language that we test; only programs that list network
// interfaces fail (getifaddrs, if_nameindex, Node's os.networkInterfaces), and
// there is nothing to list but the loopback.
var socketChecks = []check{
	familyCheck(afUNIX, afINET, afINET6),
	typeCheck,
	{
		arg: 2, in: []uint32{0, protoICMP, protoTCP, protoUDP, protoICMPV6}, otherwise: errno(ePROTONOSUPPORT),
		why: "no rare protocols (SCTP, DCCP, L2TP, MPTCP, SMC, UDP-Lite)",
	},
}

var socketpairChecks = []check{familyCheck(afUNIX), typeCheck}

func deviceCheck(arg int) check {
	return check{
		arg: arg, mask: modeTypeMask, in: []uint32{0, modeRegular, modeFIFO, modeSock}, otherwise: refuse,
		why: "pipes, sockets and files, no devices",
	}
}

// prctlOptions are the prctl(2) options that a program may use; include/uapi/linux/prctl.h.
var prctlOptions = []uint32{
	1, 2, // PR_SET_PDEATHSIG, PR_GET_PDEATHSIG
	3, 4, // PR_GET_DUMPABLE, PR_SET_DUMPABLE
	7, 8, // PR_GET_KEEPCAPS, PR_SET_KEEPCAPS
	13,     // PR_GET_TIMING
	15, 16, // PR_SET_NAME, PR_GET_NAME
	21, 22, // PR_GET_SECCOMP, PR_SET_SECCOMP
	23, 24, // PR_CAPBSET_READ, PR_CAPBSET_DROP
	25, 26, // PR_GET_TSC, PR_SET_TSC
	27, 28, // PR_GET_SECUREBITS, PR_SET_SECUREBITS
	29, 30, // PR_SET_TIMERSLACK, PR_GET_TIMERSLACK
	34,     // PR_MCE_KILL_GET
	36, 37, // PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER
	38, 39, // PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS
	40,     // PR_GET_TID_ADDRESS
	41, 42, // PR_SET_THP_DISABLE, PR_GET_THP_DISABLE
	47,     // PR_CAP_AMBIENT
	50, 51, // PR_SVE_SET_VL, PR_SVE_GET_VL
	52, 53, // PR_GET_SPECULATION_CTRL, PR_SET_SPECULATION_CTRL
	54,     // PR_PAC_RESET_KEYS
	55, 56, // PR_SET_TAGGED_ADDR_CTRL, PR_GET_TAGGED_ADDR_CTRL
	59,     // PR_SET_SYSCALL_USER_DISPATCH
	60, 61, // PR_PAC_SET_ENABLED_KEYS, PR_PAC_GET_ENABLED_KEYS
	63, 64, // PR_SME_SET_VL, PR_SME_GET_VL
	65, 66, // PR_SET_MDWE, PR_GET_MDWE
	74, 75, 76, // PR_GET_, PR_SET_, PR_LOCK_SHADOW_STACK_STATUS
	0x41555856, // PR_GET_AUXV
	0x53564d41, // PR_SET_VMA: names for mappings
	0x59616d61, // PR_SET_PTRACER: ptrace itself is refused
}
