package serve

import (
	"context"
	"strings"
	"time"

	"pinfold/internal/access"
	"pinfold/internal/audit"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// changesEvery is how often changes are looked for: "pinfold key" makes them from another
// process, which cannot write to the log.
const changesEvery = time.Second

// changeWatch records which keys are made and revoked, and which policy holds, also what
// changed while no server ran. What it has recorded the log itself remembers. But for its
// beginning it is run's goroutine's.
type changeWatch struct {
	s       *server
	revoked map[string]bool    // the keys in the log, and whether their end is
	policy  string             // the digest of the last policy in the log; empty: none held
	asked   chan chan struct{} // closes each when it has looked at the policy
	quit    chan struct{}
	done    chan struct{}
}

// watchChanges begins to record changes of keys and of the policy.
func (s *server) watchChanges() error {
	w := &changeWatch{s: s, revoked: map[string]bool{}, asked: make(chan chan struct{}), quit: make(chan struct{}), done: make(chan struct{})}
	kinds := audit.Filter{Kinds: []sandbox.AuditKind{sandbox.AuditKeyCreated, sandbox.AuditKeyRevoked, sandbox.AuditPolicySet, sandbox.AuditPolicyRemoved}}
	for from := int64(0); from >= 0; {
		page, next, err := s.audit.List(kinds, from, 1000)
		if err != nil {
			return err
		}
		for _, e := range page {
			switch e.Kind {
			case sandbox.AuditPolicySet:
				if e.Policy != nil {
					w.policy = e.Policy.Digest
				}
			case sandbox.AuditPolicyRemoved:
				w.policy = ""
			default:
				w.revoked[e.ID] = w.revoked[e.ID] || e.Kind == sandbox.AuditKeyRevoked
			}
		}
		from = next
	}
	s.changes = w
	go w.run()
	return nil
}

func (w *changeWatch) run() {
	defer close(w.done)
	ticker := time.NewTicker(changesEvery)
	defer ticker.Stop()
	for {
		w.look(context.Background())
		select {
		case <-w.quit:
			w.look(context.Background())
			return
		case <-ticker.C:
		case looked := <-w.asked:
			w.lookAtPolicy(context.Background())
			close(looked)
		}
	}
}

// recordPolicy returns when the policy that holds now is recorded, or it was tried: one that
// holds for a moment is a policy, too.
func (w *changeWatch) recordPolicy() {
	looked := make(chan struct{})
	select {
	case w.asked <- looked:
		<-looked
	case <-w.done:
	}
}

// end looks a last time.
func (w *changeWatch) end() {
	close(w.quit)
	<-w.done
}

// look records what has changed. What cannot be recorded is tried again.
func (w *changeWatch) look(ctx context.Context) {
	w.lookAtPolicy(ctx)
	w.lookAtKeys(ctx)
}

func (w *changeWatch) lookAtPolicy(ctx context.Context) {
	now := ""
	if p := w.s.rules(); p != nil {
		now = p.Digest()
	}
	if now == w.policy {
		return
	}
	if _, err := w.s.audit.Record(ctx, records.PolicyEvent(now, time.Now().UTC())); err != nil {
		w.s.log.Error("a change of the policy is not recorded; it is tried again", "digest", now, "error", err)
		return
	}
	w.policy = now
}

func (w *changeWatch) lookAtKeys(ctx context.Context) {
	all, err := w.s.access.List(ctx, "")
	if err != nil {
		w.s.log.Error("changes of keys are not recorded; it is tried again", "error", err)
		return
	}
	for _, k := range all {
		ended, known := w.revoked[k.ID]
		if !known && !w.record(ctx, sandbox.AuditKeyCreated, k, k.CreatedAt) {
			return
		}
		w.revoked[k.ID] = ended
		if k.RevokedAt != nil && !ended {
			if !w.record(ctx, sandbox.AuditKeyRevoked, k, *k.RevokedAt) {
				return
			}
			w.revoked[k.ID] = true
		}
	}
}

func (w *changeWatch) record(ctx context.Context, kind sandbox.AuditKind, k access.Key, at time.Time) bool {
	_, err := w.s.audit.Record(ctx, records.Event{
		Entry: sandbox.AuditEntry{Kind: kind, Tenant: k.Tenant, ID: k.ID, StartedAt: at.UTC()},
		Parts: map[string][]byte{"scopes": []byte(strings.Join(k.Scopes, ",")), "name": []byte(k.Name)},
	})
	if err != nil {
		w.s.log.Error("a change of a key is not recorded; it is tried again", "key", k.ID, "error", err)
	}
	return err == nil
}
