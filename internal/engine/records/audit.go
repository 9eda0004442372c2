package records

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"pinfold/internal/policy"
	"pinfold/sandbox"
)

// Auditor keeps the record that nobody can rewrite. It is safe for concurrent use.
type Auditor interface {
	// Strict says that what cannot be recorded must not be: it is not begun while Check
	// has an error, and its result is withheld where Record has one.
	Strict() bool
	// Check says why nothing could be recorded now, or nil.
	Check() error
	// Record returns when the event is on the disk, with its receipt.
	Record(ctx context.Context, e Event) (*sandbox.Receipt, error)
	// Recorded returns an entry, as an error of code not_found where there is none, with
	// the parts that are kept of it, each as it was recorded; none: they are not kept.
	Recorded(index int64) (sandbox.AuditEntry, map[string][]byte, error)
}

// Event is something that is recorded. What is said in the open is in Entry, whose V,
// Index, SaltSHA256, Time, Missing, Texts and Digests are the auditor's; of Parts, by name,
// digests are recorded.
type Event struct {
	Entry sandbox.AuditEntry
	Parts map[string][]byte
}

type keyOfRequest struct{}

// WithKey says by which key a request was made.
func WithKey(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, keyOfRequest{}, id)
}

// KeyOf is the id of the key by which a request was made, or empty.
func KeyOf(ctx context.Context) string {
	id, _ := ctx.Value(keyOfRequest{}).(string)
	return id
}

// ResultParts names the parts of a run's event that are in its result.
func ResultParts() []string {
	return []string{"stdout", "stderr", "results", "artifacts", "isolation", "findings", "policy"}
}

// RunEvent is what is recorded of a run's result. AddSpec adds what was asked for.
func RunEvent(r *sandbox.Result) Event {
	e := Event{
		Entry: sandbox.AuditEntry{
			Kind: sandbox.AuditRun, ID: r.ID, Language: r.Language, Profile: r.Profile, Isolation: Wall(r.Isolation),
			Status: r.Status, Cause: r.Cause.Kind, Evidence: r.Cause.Evidence, ExitCode: r.ExitCode, Signal: r.Signal,
			WallMS: r.Usage.WallMS, CPUMS: r.Usage.CPUMS, Memory: r.Usage.MemoryPeakBytes,
		},
		Parts: map[string][]byte{},
	}
	if r.Error != nil {
		e.Entry.Error = r.Error.Code
	}
	if r.Gate != nil {
		e.Entry.Gate = r.Gate.Outcome
	}
	if seen := policy.SeenIn(r); seen != nil {
		e.data("findings", r.Findings)
		e.Entry.Severity = seen.Worst()
		for _, f := range seen.Findings {
			if !slices.Contains(e.Entry.Findings, f.Rule) {
				e.Entry.Findings = append(e.Entry.Findings, f.Rule)
			}
		}
	}
	e.policy(r.Policy)
	e.output("stdout", r.Stdout, r.StdoutRaw)
	e.output("stderr", r.Stderr, r.StderrRaw)
	if len(r.Results) > 0 {
		e.data("results", r.Results)
	}
	var artifacts []sandbox.Artifact
	for _, a := range r.Artifacts {
		a.Content = nil // its hash stands for it
		artifacts = append(artifacts, a)
	}
	if len(artifacts) > 0 {
		e.data("artifacts", artifacts)
	}
	e.data("isolation", e.Entry.Isolation)
	e.network(r.Network)
	return e
}

// AddSpec adds what was asked for.
func (e *Event) AddSpec(s *sandbox.Spec) {
	e.Entry.Template, e.Entry.Isolation.Required = s.Template, s.Require
	e.text("code", s.Code)
	e.text("stdin", s.Stdin)
	for name, asked := range map[string]struct {
		some bool
		what any
	}{
		"files": {len(s.Files) > 0, s.Files}, "args": {len(s.Args) > 0, s.Args}, "env": {len(s.Env) > 0, s.Env},
		"metadata": {len(s.Metadata) > 0, s.Metadata}, "mounts": {len(s.Mounts) > 0, s.Mounts}, "packages": {!s.Packages.Empty(), s.Packages},
		"network": {len(s.Network.Endpoints) > 0, s.Network}, "limits": {true, s.Limits},
	} {
		if asked.some {
			e.data(name, asked.what)
		}
	}
}

// policy adds what the operator's rules have made of a request. The digest policy is of all
// of it.
func (e *Event) policy(p *sandbox.PolicyResult) {
	if p == nil {
		return
	}
	e.Entry.Policy = &sandbox.AuditPolicy{Digest: p.Digest}
	for _, m := range p.Rules {
		e.Entry.Policy.Rules = append(e.Entry.Policy.Rules, m.Rule)
	}
	if a := p.Approval; a != nil {
		e.Entry.Policy.Verdict, e.Entry.Policy.By = a.Verdict, a.By
	}
	e.data("policy", p)
}

// DecisionEvent is what is recorded when a person has decided on a run.
func DecisionEvent(a sandbox.Approval, d sandbox.PolicyDecision, digest string) Event {
	kind := sandbox.AuditRunDenied
	if d.Verdict == sandbox.VerdictApproved {
		kind = sandbox.AuditRunApproved
	}
	e := Event{
		Entry: sandbox.AuditEntry{Kind: kind, ID: a.Run, Tenant: a.Tenant, Key: d.By, Language: a.Language, Evidence: d.Reason, StartedAt: d.At},
		Parts: map[string][]byte{},
	}
	e.policy(&sandbox.PolicyResult{Digest: digest, Rules: a.Rules, Approval: &d})
	return e
}

// Wall is what is recorded of an isolation.
func Wall(i sandbox.Isolation) *sandbox.AuditIsolation {
	w := &sandbox.AuditIsolation{Driver: i.Driver, Enforced: i.Enforced}
	for _, gap := range i.NotEnforced {
		w.NotEnforced = append(w.NotEnforced, gap.What)
	}
	return w
}

func (e *Event) text(name, content string) {
	if content != "" {
		e.Parts[name] = []byte(content)
	}
}

// RawPart names the part that has the bytes of an output whose text is another.
func RawPart(name string) string { return name + "_base64" }

// output adds what was printed: its text and, where they say more and are known, its bytes.
func (e *Event) output(name, text string, raw []byte) {
	e.text(name, text)
	if len(raw) > 0 && string(raw) != text {
		e.Parts[RawPart(name)] = raw
	}
}

// data adds JSON. What the vocabulary has can always be said in it.
func (e *Event) data(name string, content any) {
	if b, err := json.Marshal(content); err == nil {
		e.Parts[name] = b
	}
}

// SandboxEvent is what is recorded of a living sandbox when it was made or has ended.
func SandboxEvent(kind sandbox.AuditKind, info sandbox.Info) Event {
	e := Event{
		Entry: sandbox.AuditEntry{
			Kind: kind, ID: info.ID, Origin: cmp.Or(info.ForkOf, info.Snapshot), Template: info.Template, Profile: info.Profile, Isolation: Wall(info.Isolation), StartedAt: info.CreatedAt,
			WallMS: info.Usage.WallMS, CPUMS: info.Usage.CPUMS, Memory: info.Usage.MemoryPeakBytes,
		},
		Parts: map[string][]byte{},
	}
	if info.Cause != nil {
		e.Entry.Cause, e.Entry.Evidence = info.Cause.Kind, info.Cause.Evidence
	}
	if info.Error != nil {
		e.Entry.Error = info.Error.Code
	}
	if len(info.Metadata) > 0 {
		e.data("metadata", info.Metadata)
	}
	e.policy(info.Policy)
	e.data("limits", info.Limits)
	e.data("isolation", e.Entry.Isolation)
	if kind == sandbox.AuditSandboxEnded {
		e.network(info.Network)
	}
	return e
}

// NetworkEvent is what is recorded when what a living sandbox can reach was changed.
func NetworkEvent(id string, n sandbox.Network, wider bool, at time.Time) Event {
	e := Event{Entry: sandbox.AuditEntry{Kind: sandbox.AuditSandboxNetwork, ID: id, Evidence: "narrowed", StartedAt: at}, Parts: map[string][]byte{}}
	if wider {
		e.Entry.Evidence = "widened"
	}
	e.data("network", n)
	return e
}

// FilesEvent is what is recorded when a request has brought files into a living sandbox, or
// out of it. The digest files is of lines that name each, with its content's SHA-256.
func FilesEvent(kind sandbox.AuditKind, box, path string, files, bytes int64, lines []byte) Event {
	return Event{
		Entry: sandbox.AuditEntry{Kind: kind, ID: path, Sandbox: box, Files: files, Bytes: bytes, StartedAt: time.Now()},
		Parts: map[string][]byte{"files": lines},
	}
}

// PolicyEvent is what is recorded when another policy holds from now on; without a digest,
// none.
func PolicyEvent(digest string, at time.Time) Event {
	e := Event{Entry: sandbox.AuditEntry{Kind: sandbox.AuditPolicyRemoved, StartedAt: at}}
	if digest != "" {
		e.Entry.Kind, e.Entry.Policy = sandbox.AuditPolicySet, &sandbox.AuditPolicy{Digest: digest}
	}
	return e
}

// network adds what went on with endpoints, where there were some.
func (e *Event) network(u *sandbox.NetworkUse) {
	if u == nil {
		return
	}
	n := &sandbox.AuditNetwork{Denied: u.DeniedMore}
	for _, one := range u.Endpoints {
		n.Connections += one.Connections
		n.Requests += one.Requests
		n.Secrets = append(n.Secrets, one.SecretNames...)
	}
	for _, d := range u.Denied {
		n.Denied += d.Count
	}
	slices.Sort(n.Secrets)
	n.Secrets = slices.Compact(n.Secrets)
	e.Entry.Network = n
	e.data("network_use", u)
}

// SecretEvent is what is recorded when a secret was set or removed.
func SecretEvent(kind sandbox.AuditKind, tenant, key, name string, at time.Time) Event {
	return Event{Entry: sandbox.AuditEntry{Kind: kind, Tenant: tenant, Key: key, ID: name, StartedAt: at}}
}

// AddCreate adds what was asked for.
func (e *Event) AddCreate(c sandbox.Create) {
	e.Entry.Isolation.Required = c.Require
	if len(c.Env) > 0 {
		e.data("env", c.Env)
	}
	if len(c.Mounts) > 0 {
		e.data("mounts", c.Mounts)
	}
	if !c.Packages.Empty() {
		e.data("packages", c.Packages)
	}
	if len(c.Network.Endpoints) > 0 {
		e.data("network", c.Network)
	}
	if !c.Gate.Empty() {
		e.data("gate", c.Gate)
	}
}

// ProcessEvent is what is recorded of a process in a living sandbox when it has ended:
// its output is what was kept of it, and passed its gate, bytes and all.
func ProcessEvent(p sandbox.Process, c sandbox.Command) Event {
	e := Event{
		Entry: sandbox.AuditEntry{
			Kind: sandbox.AuditProcess, ID: p.ID, Status: p.Status, ExitCode: p.ExitCode, Signal: p.Signal, StartedAt: p.StartedAt, WallMS: p.WallMS,
		},
		Parts: map[string][]byte{},
	}
	if p.Cause != nil {
		e.Entry.Cause, e.Entry.Evidence = p.Cause.Kind, p.Cause.Evidence
	}
	if p.Gate != nil {
		e.Entry.Gate = p.Gate.Outcome
	}
	e.data("args", p.Args)
	if len(c.Env) > 0 {
		e.data("env", c.Env)
	}
	if len(c.Metadata) > 0 {
		e.data("metadata", c.Metadata)
	}
	e.output("stdout", p.Stdout, p.StdoutRaw)
	e.output("stderr", p.Stderr, p.StderrRaw)
	return e
}
