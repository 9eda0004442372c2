package seccomp

import "maps"

// conditions take the place of those of the table where the host's namespaces are the
// sandbox's as well.
func (s *Shared) conditions() map[string][]check {
	all := maps.Clone(sharedConditions)
	if s.Sockets {
		all["socket"] = []check{familyCheck(afUNIX), typeCheck}
		all["socketpair"] = socketpairChecks
	}
	if s.Identity {
		maps.Copy(all, identityConditions)
	}
	return all
}

// never is the condition that no arguments meet.
func never(otherwise verdict, why string) []check {
	return []check{{arg: 0, in: []uint32{}, otherwise: otherwise, why: why}}
}

const (
	noSegments = "the host's shared memory and semaphores outlive who made them"
	noSockets  = "the network and the sockets are the host's"
)

// sharedConditions hold in every process that shares the host's namespaces.
var sharedConditions = map[string][]check{
	"socket": never(errno(eAFNOSUPPORT), noSockets),
	"socketpair": {familyCheck(afUNIX), {
		arg: 1, mask: sockTypeMask, in: []uint32{sockSTREAM, sockSEQPACKET}, otherwise: errno(ePROTONOSUPPORT),
		why: "one end of a pair of datagram sockets can send to any other socket",
	}},
	"shmget": never(refuse, noSegments), "shmat": never(refuse, noSegments), "shmctl": never(refuse, noSegments),
	"semget": never(refuse, noSegments), "semop": never(refuse, noSegments), "semtimedop": never(refuse, noSegments), "semctl": never(refuse, noSegments),
}

// Whose priority a call is about: of one process, not of a group's or a user's.
const prioProcess, ioprioWhoProcess = 0, 1

const (
	byName   = "the user's other files have names, too; an open file is the sandbox's own"
	ownAlone = "the user's other processes are the same user's"
)

// identityConditions hold in addition where the user id is one of the host's people's:
// Landlock looks at what is read, written and made, and not at whose and how files are.
var identityConditions = map[string][]check{
	"chmod": never(refuse, byName), "fchmodat": never(refuse, byName), "fchmodat2": never(refuse, byName),
	"chown": never(refuse, byName), "lchown": never(refuse, byName), "fchownat": never(refuse, byName),
	"utime": never(refuse, byName), "utimes": never(refuse, byName), "futimesat": never(refuse, byName),
	"utimensat": {
		{arg: 1, in: []uint32{0}, otherwise: refuse, why: byName},
		{arg: 1, high: true, in: []uint32{0}, otherwise: refuse, why: byName},
	},
	"setxattr": never(errno(eOPNOTSUPP), byName), "lsetxattr": never(errno(eOPNOTSUPP), byName),
	"removexattr": never(errno(eOPNOTSUPP), byName), "lremovexattr": never(errno(eOPNOTSUPP), byName),

	"setpriority": {
		{arg: 0, in: []uint32{prioProcess}, otherwise: refuse, why: ownAlone},
		{arg: 1, in: []uint32{0}, otherwise: refuse, why: ownAlone},
	},
	"ioprio_set": {
		{arg: 0, in: []uint32{ioprioWhoProcess}, otherwise: refuse, why: ownAlone},
		{arg: 1, in: []uint32{0}, otherwise: refuse, why: ownAlone},
	},
	"sched_setaffinity":  {{arg: 0, in: []uint32{0}, otherwise: refuse, why: ownAlone}},
	"sched_setscheduler": {{arg: 0, in: []uint32{0}, otherwise: refuse, why: ownAlone}},
	"sched_setparam":     {{arg: 0, in: []uint32{0}, otherwise: refuse, why: ownAlone}},
	"sched_setattr":      {{arg: 0, in: []uint32{0}, otherwise: refuse, why: ownAlone}},
}
