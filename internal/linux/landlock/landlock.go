// Package landlock says what Landlock can do on this kernel and which rights
// a sandbox hands out, as bytes for the three Landlock system calls.
//
// Landlock is Pinfold's second layer over files, below the mounts: a mount
// that lets too much through is still held by these rules. It also keeps
// signals and abstract UNIX sockets inside the sandbox. The network rights are
// left alone on purpose: servers on the sandbox's own loopback must work, and
// there is no other network.
//
// The package makes no rule sets. Whoever builds a sandbox puts
// landlock_create_ruleset, landlock_add_rule and landlock_restrict_self into
// its own list of steps, with the bytes from here. Two things to know there:
// no_new_privs must be set before restrict_self, and a restricted process
// cannot change mounts, so that step comes after the last mount. Descriptors
// that were open before keep the rights they were opened with.
//
// A level is the kernel's Landlock ABI. Callers pass it in and do not get a
// weaker one without asking: Ruleset of a lower level handles less, and says
// so in its masks.
//
// Source: the kernel's Documentation/userspace-api/landlock.rst (sections
// "Access rights", "Previous limitations", "Errata") and
// include/uapi/linux/landlock.h.
package landlock

import "encoding/binary"

// Levels.
const (
	// MinLevel is the lowest worth using. At level 1 the kernel refuses every
	// rename and link between directories, also inside a writable tree.
	MinLevel = 2
	// MaxLevel is the highest that this package has rights for. A newer kernel
	// is used at MaxLevel.
	MaxLevel = 9
)

// Access is a set of rights over files, LANDLOCK_ACCESS_FS_*.
type Access uint64

// The rights, in the order of their bits.
const (
	execute Access = 1 << iota
	writeFile
	readFile
	readDir
	removeDir
	removeFile
	makeChar
	makeDir
	makeReg
	makeSock
	makeFIFO
	makeBlock
	makeSym
	refer
	truncate
	ioctlDev
	resolveUnix
)

// Scopes, LANDLOCK_SCOPE_*: what may not reach out of the sandbox.
const (
	scopeAbstractUnix uint64 = 1 << iota
	scopeSignal
)

// Flags of landlock_restrict_self, LANDLOCK_RESTRICT_SELF_*.
const (
	logSameExecOff   = 1 << 0
	logSubdomainsOff = 1 << 2
)

// levels says what each level added to what a rule set can handle.
// Levels 4 and 10 added network rights, 8 only a flag.
var levels = []struct {
	level  int
	access Access
	scoped uint64
}{
	{1, makeSym<<1 - 1, 0},                  // Linux 5.13: everything up to symlinks
	{2, refer, 0},                           // Linux 5.19
	{3, truncate, 0},                        // Linux 6.2
	{5, ioctlDev, 0},                        // Linux 6.10
	{6, 0, scopeAbstractUnix | scopeSignal}, // Linux 6.12
	{9, resolveUnix, 0},                     // Linux 7.1
}

// Handled is every right that a rule set of a level takes away unless a rule
// gives it back. 0 for a level below 1.
func Handled(level int) Access {
	var a Access
	for _, l := range levels {
		if l.level <= level {
			a |= l.access
		}
	}
	return a
}

// Scoped is what a rule set of a level keeps inside the sandbox.
func Scoped(level int) uint64 {
	var s uint64
	for _, l := range levels {
		if l.level <= level {
			s |= l.scoped
		}
	}
	return s
}

// Use is a way to use a file or a tree of files. Rules are made from it.
type Use int

// The uses of a sandbox's trees.
const (
	ReadExecute Use = iota // system files: read, list, execute
	Write                  // home, /tmp, /dev/shm: everything but device nodes and host sockets
	Devices                // /dev and the files in it: read, write, ioctl; nothing made
	Proc                   // /proc: read, list, write what the kernel offers
	Read                   // read and list
)

// uses hands out no resolveUnix: named sockets that the sandbox made itself can
// be reached without, and a host's socket below a mounted directory must not.
// Nobody may make device nodes.
var uses = map[Use]Access{
	ReadExecute: execute | readFile | readDir,
	Write: execute | readFile | readDir | writeFile | truncate | refer |
		removeDir | removeFile | makeDir | makeReg | makeSock | makeFIFO | makeSym,
	Devices: readFile | readDir | writeFile | ioctlDev,
	Proc:    readFile | readDir | writeFile | truncate, // a shell's > truncates
	Read:    readFile | readDir,
}

// forFiles are the rights that a rule on something other than a directory may
// have; the kernel refuses the rule otherwise (EINVAL).
const forFiles = execute | writeFile | readFile | truncate | ioctlDev

// Rights are the rights of a use over a directory and all below it, at a level.
func (u Use) Rights(level int) Access { return uses[u] & Handled(level) }

// FileRights are the rights of a use over a single file, at a level.
func (u Use) FileRights(level int) Access { return u.Rights(level) & forFiles }

// RulesetAttr is the attribute of landlock_create_ruleset for a level: struct
// landlock_ruleset_attr as far as that level knows it. The call's second
// argument is its length. It is nil for a level below 1.
func RulesetAttr(level int) []byte { return rulesetAttr(level, Scoped(level)) }

// RulesetAttrWithSignals is RulesetAttr for processes that may send signals to
// others outside, as far as everything else allows it.
func RulesetAttrWithSignals(level int) []byte {
	return rulesetAttr(level, Scoped(level)&^scopeSignal)
}

// ScopeAttr is the attribute for a rule set that keeps signals and abstract sockets inside,
// and takes no right over files away once its one rule is added, ScopeRights over the root:
// to move files between directories is the one that the kernel refuses in any set that does
// not give it. nil below the level that can do that.
func ScopeAttr(level int) []byte {
	if Scoped(level) == 0 {
		return nil
	}
	b := binary.NativeEndian.AppendUint64(nil, uint64(ScopeRights))
	b = binary.NativeEndian.AppendUint64(b, 0) // network rights, none handled
	return binary.NativeEndian.AppendUint64(b, Scoped(level))
}

// ScopeRights is what ScopeAttr's rule set handles.
const ScopeRights = refer

// ScopeLevel is the lowest level that keeps signals inside.
const ScopeLevel = 6

// SocketLevel is the lowest level that keeps named UNIX sockets inside.
const SocketLevel = 9

func rulesetAttr(level int, scoped uint64) []byte {
	if level < 1 {
		return nil
	}
	b := binary.NativeEndian.AppendUint64(nil, uint64(Handled(level)))
	if scoped != 0 {
		b = binary.NativeEndian.AppendUint64(b, 0) // network rights, none handled
		b = binary.NativeEndian.AppendUint64(b, scoped)
	}
	return b
}

// RulePathBeneath is the rule type that goes with PathBeneathAttr.
const RulePathBeneath = 1 // LANDLOCK_RULE_PATH_BENEATH

// PathBeneathAttr is the attribute of landlock_add_rule: struct
// landlock_path_beneath_attr, packed to 12 bytes. fd is the tree's directory
// or the file (O_PATH is enough), open when the call is made.
func PathBeneathAttr(rights Access, fd int) []byte {
	b := binary.NativeEndian.AppendUint64(nil, uint64(rights))
	return binary.NativeEndian.AppendUint32(b, uint32(int32(fd)))
}

// PathBeneathFDOffset is where in the attribute the descriptor stands, for
// callers that know it only when the rule is added.
const PathBeneathFDOffset = 8

// RestrictFlags are the flags of landlock_restrict_self for a level. A sandbox
// gets no say in the host's audit log: without these flags a guest that makes
// domains of its own could fill it.
func RestrictFlags(level int) uintptr {
	if level < 7 {
		return 0
	}
	return logSameExecOff | logSubdomainsOff
}
