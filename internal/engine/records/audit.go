package records

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

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
func ResultParts() []string { return []string{"stdout", "stderr", "results", "artifacts", "isolation"} }

// RunEvent is what is recorded of a run's result. AddSpec adds what was asked for.
func RunEvent(r *sandbox.Result) Event {
	e := Event{
		Entry: sandbox.AuditEntry{
			Kind: sandbox.AuditRun, ID: r.ID, Language: r.Language, Isolation: Wall(r.Isolation),
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
		"metadata": {len(s.Metadata) > 0, s.Metadata}, "mounts": {len(s.Mounts) > 0, s.Mounts},
		"network": {len(s.Network.Endpoints) > 0, s.Network}, "limits": {true, s.Limits},
	} {
		if asked.some {
			e.data(name, asked.what)
		}
	}
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
			Kind: kind, ID: info.ID, Origin: cmp.Or(info.ForkOf, info.Snapshot), Template: info.Template, Isolation: Wall(info.Isolation), StartedAt: info.CreatedAt,
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
	e.data("limits", info.Limits)
	e.data("isolation", e.Entry.Isolation)
	if kind == sandbox.AuditSandboxEnded {
		e.network(info.Network)
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
	if len(c.Network.Endpoints) > 0 {
		e.data("network", c.Network)
	}
}

// ProcessEvent is what is recorded of a process in a living sandbox when it has ended:
// its output is what was kept of it, bytes and all.
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
