package sandbox

import "time"

// Policy is what an operator has decided by rules: which wall a run gets, by what a scan
// saw in it and by what it asks for. A rule makes a run stronger held, or refuses it; no
// rule makes it weaker.
type Policy struct {
	Approval PolicyApproval `json:"approval,omitzero"`
	Rules    []PolicyRule   `json:"rules"`
}

// PolicyApproval says how people are asked.
type PolicyApproval struct {
	TimeoutMS int64 `json:"timeout_ms,omitempty"` // then the run is refused; default DefaultApprovalMS
	Pending   int   `json:"pending,omitempty"`    // runs of one tenant that may wait; default DefaultPending
	Own       bool  `json:"own,omitempty"`        // the key that asked may decide, too
}

// What holds where nothing is said of approval.
const (
	DefaultApprovalMS = 10 * 60 * 1000
	DefaultPending    = 20
)

// PolicyRule is one rule. All that match apply, in their order.
type PolicyRule struct {
	ID   string     `json:"id" yaml:"id"`
	When PolicyWhen `json:"when,omitzero" yaml:"when"` // nothing: every run
	Then PolicyThen `json:"then" yaml:"then"`
}

// PolicyWhen is what a rule is about. All that is given has to be so; of a list, one.
type PolicyWhen struct {
	// Severity is that of a finding, or a worse one; Findings are ids of rules of the scan,
	// where * at the end stands for any ending. Given both, one finding has to be both. A
	// program that could not be scanned has every finding, and so have living sandboxes,
	// of whose programs nobody knows beforehand.
	Severity string   `json:"severity,omitempty" yaml:"severity"`
	Findings []string `json:"findings,omitempty" yaml:"findings"`
	// Kinds are what is asked for: "run", "sandbox".
	Kinds     []string `json:"kinds,omitempty" yaml:"kinds"`
	Tenants   []string `json:"tenants,omitempty" yaml:"tenants"`
	Keys      []string `json:"keys,omitempty" yaml:"keys"`           // ids
	Languages []string `json:"languages,omitempty" yaml:"languages"` // by any name; a living sandbox is of every one
	// Network is "any" or "none". Hosts are names and patterns, one of which an endpoint
	// that is asked for may reach.
	Network string   `json:"network,omitempty" yaml:"network"`
	Hosts   []string `json:"hosts,omitempty" yaml:"hosts"`
	// Data is what goes in beside the program: "mounts", "inputs".
	Data []string `json:"data,omitempty" yaml:"data"`
	// Isolation are levels: the least that is asked for.
	Isolation []string `json:"isolation,omitempty" yaml:"isolation"`
	Profiles  []string `json:"profiles,omitempty" yaml:"profiles"`
}

// PolicyThen is what a rule does. At least one of it is given.
type PolicyThen struct {
	Isolation string   `json:"isolation,omitempty" yaml:"isolation"` // the least level
	Network   string   `json:"network,omitempty" yaml:"network"`     // "none" takes it away
	Allow     []string `json:"allow,omitempty" yaml:"allow"`         // it keeps what is within these endpoints, see ParseAllowed
	Limits    Limits   `json:"limits,omitzero" yaml:"limits"`        // the most
	Ask       string   `json:"ask,omitempty" yaml:"ask"`             // a person is asked, for this reason
	Refuse    string   `json:"refuse,omitempty" yaml:"refuse"`       // for this reason
}

// Words of rules.
const (
	PolicyAny    = "any"
	PolicyNone   = "none"
	PolicyRun    = "run"
	PolicyLiving = "sandbox"
	PolicyMounts = "mounts" // directories of the host; of a server's runs never
	PolicyInputs = "inputs" // files beside the program, packages, standard input, a snapshot
)

// PolicyResult is what a policy has made of one run or one living sandbox.
type PolicyResult struct {
	Digest string        `json:"digest"` // SHA-256 of the policy, hexadecimal
	Rules  []PolicyMatch `json:"rules"`  // those that matched, in their order
	// Limits are the most that these rules allow; a zero field: they say nothing of it.
	Limits Limits `json:"limits,omitzero"`
	// Approval is what a person decided; nil where none was asked.
	Approval *PolicyDecision `json:"approval,omitempty"`
}

// PolicyMatch is a rule that matched.
type PolicyMatch struct {
	Rule    string         `json:"rule"`
	Because []string       `json:"because,omitempty"` // "finding process-start (warning)"
	Changes []PolicyChange `json:"changes,omitempty"`
	Ask     string         `json:"ask,omitempty"`
	Refuse  string         `json:"refuse,omitempty"`
}

// PolicyChange is one thing that a rule changed: a field of the request.
type PolicyChange struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// Verdict is how a person decided, or that none did in time.
type Verdict string

// The verdicts.
const (
	VerdictApproved Verdict = "approved"
	VerdictDenied   Verdict = "denied"
	VerdictTimeout  Verdict = "timeout"
)

// PolicyDecision is what came of asking a person.
type PolicyDecision struct {
	Verdict Verdict   `json:"verdict"`
	By      string    `json:"by,omitempty"` // the id of the key, or "local"
	Reason  string    `json:"reason,omitempty"`
	AskedAt time.Time `json:"asked_at"`
	At      time.Time `json:"at"`
}

// MaxReason bounds the reason of a decision, in bytes.
const MaxReason = 500

// Approval is a run that waits for a person.
type Approval struct {
	Run       string        `json:"run"`
	Tenant    string        `json:"tenant"`
	Key       string        `json:"key,omitempty"` // the id of the key that asked
	AskedAt   time.Time     `json:"asked_at"`
	ExpiresAt time.Time     `json:"expires_at"` // then it is refused
	Language  string        `json:"language"`
	Isolation string        `json:"isolation"` // of the driver that it will get
	Driver    string        `json:"driver"`
	Network   []string      `json:"network,omitempty"` // endpoints, in words
	Rules     []PolicyMatch `json:"rules"`
	Findings  []Finding     `json:"findings,omitempty"`
	// FindingsUnread is as in a Result.
	FindingsUnread string `json:"findings_unread,omitempty"`
	// Spec is what will run; where one run is asked for, and not in lists. Cut says that
	// contents of it were too large to be shown.
	Spec *Spec `json:"spec,omitempty"`
	Cut  bool  `json:"cut,omitempty"`
	// OpenStdin says that what the program reads comes while it runs, and is not in Spec.
	OpenStdin bool `json:"open_stdin,omitempty"`
}

// Decide is a person's word on a run that waits.
type Decide struct {
	Reason string `json:"reason,omitempty"`
}

// PolicyTrial asks what a policy would have done to the last runs.
type PolicyTrial struct {
	Policy Policy `json:"policy"`
	Last   int    `json:"last,omitempty"` // how many; default and most: MaxTrial
}

// MaxTrial is how many runs a trial looks at, at most.
const MaxTrial = 1000

// PolicyReport is what a policy would have done.
type PolicyReport struct {
	Digest string `json:"digest"`
	Runs   int    `json:"runs"` // that were looked at
	// Unscanned are those whose findings nobody knows, since nothing asked for them: of
	// these no rule matched by its findings.
	Unscanned int `json:"unscanned"`
	// Refused, Asked and Changed are the runs that would have been, each counted once: the
	// first that holds.
	Refused int               `json:"refused"`
	Asked   int               `json:"asked"`
	Changed int               `json:"changed"`
	Rules   []PolicyRuleCount `json:"rules"` // of the policy, in their order
	Touched []PolicyTouched   `json:"touched"`
}

// PolicyRuleCount is how many runs a rule matched.
type PolicyRuleCount struct {
	Rule    string `json:"rule"`
	Matched int    `json:"matched"`
}

// PolicyTouched is a run that some rule matched.
type PolicyTouched struct {
	Run       string        `json:"run"`
	Tenant    string        `json:"tenant"`
	CreatedAt time.Time     `json:"created_at"`
	Unscanned bool          `json:"unscanned,omitempty"`
	Rules     []PolicyMatch `json:"rules"`
}
