package runs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"pinfold/internal/engine/records"
	"pinfold/internal/engine/replay"
	"pinfold/internal/headroom"
	"pinfold/sandbox"
)

// Replay runs what a tenant's run was asked for again, as a new run, and compares what comes
// of both: Result.Replay. It takes the request out of the audit log's texts, and refuses
// where these have not all of it. What the operator allows, and secrets' values, are
// today's.
func (rn *Runner) Replay(ctx context.Context, tenant, id string) (*sandbox.Result, error) {
	tenant = cmp.Or(tenant, records.LocalTenant)
	first, err := rn.RunRecord(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if first.Result == nil {
		return nil, &sandbox.Error{Code: sandbox.CodeConflict, Message: "the run has not finished", Hint: "wait for its result"}
	}
	asked, err := rn.askedFor(ctx, tenant, first.Result)
	if err != nil {
		return nil, err
	}
	again := &replay.Original{Result: first.Result, MadeWith: asked.MadeWith}
	for _, e := range asked.Spec.Network.Endpoints {
		if e.Secret != "" {
			again.Secrets = append(again.Secrets, e.Secret)
		}
	}
	slices.Sort(again.Secrets)
	again.Secrets = slices.Compact(again.Secrets)
	asked.Spec.Driver = cmp.Or(first.Result.Isolation.Driver, asked.Spec.Driver)
	return rn.Run(ctx, Request{Spec: asked.Spec, Tenant: tenant, NoArtifacts: true, Again: again})
}

// askedFor is the request of a run as the audit log has kept it.
func (rn *Runner) askedFor(ctx context.Context, tenant string, first *sandbox.Result) (records.Asked, error) {
	var none records.Asked
	if rn.auditor == nil {
		return none, notKept("this server keeps no audit log", "to have runs repeated from then on: audit.enabled: true and audit.texts: true in the server's configuration")
	}
	if first.Receipt == nil {
		return none, notKept("the run is not in the audit log", "")
	}
	entry, parts, err := rn.recorded(first.Receipt.Index)
	if err != nil {
		return none, err
	}
	if entry.ID != first.ID || entry.Tenant != tenant {
		return none, notKept("the audit log is not the one that the run was recorded in", "")
	}
	switch entry.Texts {
	case "":
		return none, notKept("of this run only digests were kept", "to keep what is asked for from now on: audit.texts: true in the server's configuration")
	case "too_large":
		return none, notKept("the run's texts were too large to be kept", "audit.text_bytes in the server's configuration says how large they may be")
	case "failed":
		return none, notKept("the run's texts could not be kept when it ended", "the server's log says why")
	}
	if parts == nil {
		return none, notKept("the run's texts were deleted", "audit.texts_retention in the server's configuration says how long they are kept")
	}
	var n int64
	for _, p := range parts {
		n += int64(len(p))
	}
	if err := headroom.Take(ctx, n); err != nil {
		return none, err
	}
	asked, ok, err := records.AskedAgain(parts)
	switch {
	case err != nil:
		return none, &sandbox.Error{Code: sandbox.CodeStateCorrupt, Message: "the request that is kept of the run cannot be read", Err: err}
	case !ok:
		return none, notKept("the run was recorded without what it takes to repeat it", "")
	case len(asked.Elsewhere) > 0:
		return none, notKept("what came to the run as a stream was not kept: "+strings.Join(asked.Elsewhere, ", "), "put it into the request")
	}
	return asked, nil
}

// recorded reads one entry's texts at a time: they may be large.
func (rn *Runner) recorded(index int64) (sandbox.AuditEntry, map[string][]byte, error) {
	rn.parsing.Lock()
	defer rn.parsing.Unlock()
	return rn.auditor.Recorded(index)
}

func notKept(why, hint string) error {
	return &sandbox.Error{Code: sandbox.CodeConflict, Message: "the run cannot be repeated: " + why, Hint: cmp.Or(hint, "send the request itself again")}
}

// asked is how the job was asked for.
func (j *job) asked() records.Asked {
	streamed := j.request.Streams.Stdin != nil
	if j.stdin != nil {
		streamed = j.stdin.Used()
	}
	a := records.Asked{Spec: j.request.Spec, MadeWith: j.madeWith()}
	for _, part := range []struct {
		name string
		is   bool
	}{{"stdin", streamed}, {"files", len(j.request.Inputs) > 0}, {"mounts", len(j.spec.Mounts) > 0}} {
		if part.is {
			a.Elsewhere = append(a.Elsewhere, part.name)
		}
	}
	return a
}

// madeWith is what decides on the outcome besides the request and the isolation.
func (j *job) madeWith() map[string]string {
	with := map[string]string{"template": j.plan.Template.ID, "pinfold": j.runner.version}
	if !j.spec.Gate.Empty() {
		if b, err := json.Marshal(j.spec.Gate); err == nil { // what the vocabulary has can always be said in JSON
			sum := sha256.Sum256(b)
			with["gate"] = hex.EncodeToString(sum[:])
		}
	}
	if p := j.result.Packages; p != nil {
		if b, err := json.Marshal(p); err == nil {
			sum := sha256.Sum256(b)
			with["packages"] = hex.EncodeToString(sum[:])
		}
	}
	return with
}

// compare says how a run that repeats another differs from it.
func (j *job) compare() {
	if again := j.request.Again; again != nil {
		j.result.Replay = replay.Compare(*again, j.result, j.madeWith())
	}
}
