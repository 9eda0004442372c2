//go:build linux

package attacks

import (
	"regexp"
	"strings"
	"time"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Severity says what an attack that succeeds would mean. All but the last
// cross the sandbox's boundary and stop a release.
type Severity string

// The severities, worst first (the names are gVisor's).
const (
	Escape    Severity = "Escape"    // code outside the sandbox
	HostLeak  Severity = "HostLeak"  // the host's data
	Exfil     Severity = "Exfil"     // data to somewhere else
	Lateral   Severity = "Lateral"   // another sandbox
	HostDoS   Severity = "HostDoS"   // the host does not work any more
	PeerDoS   Severity = "PeerDoS"   // other sandboxes do not
	Integrity Severity = "Integrity" // the result lies
	SelfDoS   Severity = "SelfDoS"   // the attacker's own sandbox, more than a limit allows
	Inside    Severity = "Inside"    // more rights inside the sandbox, where the boundary still holds
)

// Level is what the attacker controls.
type Level string

// The attackers.
const (
	User  Level = "a program"           // runs as the sandbox's user
	Agent Level = "the agent"           // has taken over the first process, with its rights
	Spec  Level = "the request"         // chose the spec, but not its mounts
	Input Level = "a file that goes in" // its name, mode, content
)

// Case is one attack.
type Case struct {
	ID       string
	Title    string
	Level    Level
	Severity Severity
	Expect   string // what the host must observe
	Source   string // where it was seen first

	Attack  Payload
	Doors   []Door              // judged on the lines that the payload prints
	Judge   func(*trial) error  // judged on the host; nil error means that the attack failed
	Around  func(*trial) func() // before the attack; the result runs after it and before Judge
	Do      func(*trial) error  // instead of Attack: the case drives the sandbox by itself
	Control Control
	Twin    *Twin
	Needs   []string // features without which the case says nothing
	Root    bool     // the case needs to be root on the host
}

// Payload is a program and how it is run.
type Payload struct {
	Language  string // "python" by default; Python gets testdata/prelude.py in front
	Code      string
	Args      []string
	Env       map[string]string
	Files     []sandbox.File
	Inputs    []runs.Input
	Limits    sandbox.Limits
	Artifacts []string
	Quick     time.Duration // at most this long, 20 s by default
}

// Door is one thing that a payload tries. The payload prints "KEY VALUE" for
// each. In the sandbox the value must match Shut; in the control it must match
// Open or, without it, must not match Shut.
type Door struct {
	Key  string
	Shut string // a regular expression for the whole value
	Open string
}

func (d Door) shut(value string) bool { return whole(d.Shut, value) }

func (d Door) open(value string) bool {
	if d.Open != "" {
		return whole(d.Open, value)
	}
	return value != "" && !d.shut(value)
}

func whole(expression, value string) bool {
	return regexp.MustCompile(`^(?:` + expression + `)$`).MatchString(value)
}

// doors gives several keys the same answer.
func doors(shut string, keys ...string) []Door {
	var all []Door
	for _, k := range strings.Fields(strings.Join(keys, " ")) {
		all = append(all, Door{Key: k, Shut: shut})
	}
	return all
}

// Control is how the attack looks without the defence.
type Control struct {
	// Without names the defence that is missing.
	Without string
	// Jail runs the payload as root in namespaces of its own without our
	// filter, rules or limits; every door must then be open.
	Jail bool
	// Run does it in another way. nil means that the attack succeeded.
	Run func(*arena) error
	// None says why there can be none.
	None string
}

// Twin is the legitimate neighbour of what is forbidden: it must work.
type Twin struct {
	What string
	Payload
	Want string // a regular expression somewhere in stdout
}
