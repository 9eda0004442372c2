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

// keysEvery is how often keys are looked at: "pinfold key" changes them from another
// process, which cannot write to the log.
const keysEvery = time.Second

// keyWatch records which keys are made and revoked, also those that were while no server
// ran. What it has recorded the log itself remembers.
type keyWatch struct {
	s       *server
	revoked map[string]bool // the keys in the log, and whether their end is
	quit    chan struct{}
	done    chan struct{}
}

// watchKeys begins to record changes of keys.
func (s *server) watchKeys() error {
	w := &keyWatch{s: s, revoked: map[string]bool{}, quit: make(chan struct{}), done: make(chan struct{})}
	kinds := audit.Filter{Kinds: []sandbox.AuditKind{sandbox.AuditKeyCreated, sandbox.AuditKeyRevoked}}
	for from := int64(0); from >= 0; {
		page, next, err := s.audit.List(kinds, from, 1000)
		if err != nil {
			return err
		}
		for _, e := range page {
			w.revoked[e.ID] = w.revoked[e.ID] || e.Kind == sandbox.AuditKeyRevoked
		}
		from = next
	}
	s.keys = w
	go w.run()
	return nil
}

func (w *keyWatch) run() {
	defer close(w.done)
	ticker := time.NewTicker(keysEvery)
	defer ticker.Stop()
	for {
		w.look(context.Background())
		select {
		case <-w.quit:
			w.look(context.Background())
			return
		case <-ticker.C:
		}
	}
}

// end looks a last time.
func (w *keyWatch) end() {
	close(w.quit)
	<-w.done
}

// look records what has changed. What cannot be recorded is tried again.
func (w *keyWatch) look(ctx context.Context) {
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

func (w *keyWatch) record(ctx context.Context, kind sandbox.AuditKind, k access.Key, at time.Time) bool {
	_, err := w.s.audit.Record(ctx, records.Event{
		Entry: sandbox.AuditEntry{Kind: kind, Tenant: k.Tenant, ID: k.ID, StartedAt: at.UTC()},
		Parts: map[string][]byte{"scopes": []byte(strings.Join(k.Scopes, ",")), "name": []byte(k.Name)},
	})
	if err != nil {
		w.s.log.Error("a change of a key is not recorded; it is tried again", "key", k.ID, "error", err)
	}
	return err == nil
}
