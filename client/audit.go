package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"

	"pinfold/sandbox"
)

// AuditFilter selects entries of the audit log. The zero value means all that the key may
// see: its tenant's, or with the scope admin everybody's.
type AuditFilter struct {
	Tenant, Key   string // an id of a key
	IDs           []string
	Kinds         []sandbox.AuditKind
	Drivers       []string
	Isolation     []string // levels
	Statuses      []sandbox.Status
	Secrets       []string // names: what used them, and what set or removed them
	Findings      []string // rules of the scan that found something
	Severities    []sandbox.Severity
	Rules         []string  // of the operator's policy that matched
	DecidedBy     []string  // ids of keys that approved or denied
	Since, Before time.Time // when it was recorded, by the server's clock
	From          int64     // the first index
	PageSize      int       // entries asked for at once; 0: the server's choice
}

func (f AuditFilter) query() url.Values {
	q := url.Values{}
	for name, words := range map[string][]string{
		"tenant": one(f.Tenant), "key": one(f.Key), "id": f.IDs, "kind": texts(f.Kinds), "driver": f.Drivers, "isolation": f.Isolation, "status": texts(f.Statuses), "secret": f.Secrets,
		"finding": f.Findings, "severity": texts(f.Severities), "rule": f.Rules, "decided_by": f.DecidedBy,
	} {
		if len(words) > 0 {
			q[name] = words
		}
	}
	for name, t := range map[string]time.Time{"since": f.Since, "before": f.Before} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	for name, n := range map[string]int64{"cursor": f.From, "limit": int64(f.PageSize)} {
		if n > 0 {
			q.Set(name, strconv.FormatInt(n, 10))
		}
	}
	return q
}

func one(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func texts[T ~string](all []T) []string {
	out := make([]string, 0, len(all))
	for _, t := range all {
		out = append(out, string(t))
	}
	return out
}

// AuditEntries returns the entries of the server's audit log that match, the oldest first,
// page by page as they are asked for. An error is the last pair.
func (c *Client) AuditEntries(ctx context.Context, f AuditFilter) iter.Seq2[sandbox.AuditEntry, error] {
	return pages[sandbox.AuditEntry](ctx, c, "audit", f)
}

// AuditRecord returns an entry of the audit log, with a receipt that proves it.
func (c *Client) AuditRecord(ctx context.Context, index int64) (sandbox.AuditRecord, error) {
	return answered[sandbox.AuditRecord](ctx, c, get("audit", strconv.FormatInt(index, 10)))
}

// AuditCheckpoint returns the audit log's newest head. Who keeps it is a witness: a log
// that does not contain it later was rewritten.
func (c *Client) AuditCheckpoint(ctx context.Context) (sandbox.AuditCheckpoint, error) {
	return answered[sandbox.AuditCheckpoint](ctx, c, get("audit", "checkpoint"))
}
