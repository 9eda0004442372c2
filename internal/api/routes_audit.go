package api

import (
	"net/http"
	"strconv"

	"pinfold/internal/audit"
	"pinfold/sandbox"
)

const auditDescription = `What a server with an audit log (audit.enabled in its configuration) has recorded: runs, processes and living sandboxes, with the wall that stood around them and how they ended, the oldest first. Of programs and output there are digests only.

A key sees the entries of its tenant; one with the scope admin those of all tenants, or of one with ?tenant=. A page may be shorter than limit, also empty, with a next.`

func (s *server) auditRoutes() []route {
	reads := []string{scopeRead}
	return []route{
		{
			method: http.MethodGet, path: "/v1/audit", id: "listAudit", tag: "Audit", summary: "List the entries of the audit log", description: auditDescription, scopes: reads,
			params: []param{
				{name: "limit", kind: kindInt, min: 1, max: 1000, fallback: "100", doc: "Entries in one page."},
				{name: "cursor", kind: kindInt, min: 0, max: maxOffset, fallback: "0", doc: "The next of the page before, or the index of the first entry wanted."},
				{name: "tenant", kind: kindText, doc: "Only this tenant's; another's needs the scope admin."},
				{name: "key", kind: kindText, doc: "Only what was asked for by the key of this id."},
				{name: "id", kind: kindText, many: true, doc: "Only about this run, process or sandbox; of a sandbox also its processes."},
				{name: "kind", kind: kindText, words: words(sandbox.AuditKinds()...), many: true, doc: "Only entries of this kind."},
				{name: "driver", kind: kindText, many: true, doc: "Only where this driver made the sandbox."},
				{name: "isolation", kind: kindText, words: sandbox.IsolationLevels(), many: true, doc: "Only where the isolation had this level."},
				{name: "status", kind: kindText, words: words(sandbox.StatusSucceeded, sandbox.StatusFailed, sandbox.StatusKilled, sandbox.StatusError), many: true, doc: "Only what ended so."},
				{name: "secret", kind: kindText, many: true, doc: "Only what put the secret of this name into a request, and what set or removed it."},
				{name: "finding", kind: kindText, many: true, doc: "Only runs in which this rule of the scan found something."},
				{name: "severity", kind: kindText, words: words(sandbox.Severities()...), many: true, doc: "Only runs whose worst finding was this."},
				{name: "rule", kind: kindText, many: true, doc: "Only what this rule of the operator's policy matched."},
				{name: "decided_by", kind: kindText, many: true, doc: "Only runs on which the key of this id decided, and its decisions."},
				{name: "since", kind: kindTime, doc: "Only what was recorded at this time or later, by the server's clock."},
				{name: "before", kind: kindTime, doc: "Only what was recorded before this time."},
			},
			answers: []reply{jsonReply[List[sandbox.AuditEntry]](http.StatusOK, "A page of entries.")}, errors: []int{http.StatusNotFound, http.StatusForbidden},
			example: `curl -s "$SERVER/v1/audit?status=killed&isolation=vm" -H "Authorization: Bearer $KEY"`,
			handle:  (*call).listAudit,
		},
		{
			method: http.MethodGet, path: "/v1/audit/checkpoint", id: "auditCheckpoint", tag: "Audit", summary: "The audit log's newest signed head", scopes: []string{scopeAny},
			description: "And the key to check it with, which is better had by another way.",
			answers:     []reply{jsonReply[sandbox.AuditCheckpoint](http.StatusOK, "The head.")}, errors: []int{http.StatusNotFound},
			example: `curl -s $SERVER/v1/audit/checkpoint -H "Authorization: Bearer $KEY"`,
			handle: on((*call).auditLog, func(c *call, l *audit.Log) error {
				entries, signed := l.Head()
				return c.reply(http.StatusOK, sandbox.AuditCheckpoint{Entries: entries, Checkpoint: signed, PublicKey: l.PublicKey()})
			}),
		},
		{
			method: http.MethodGet, path: "/v1/audit/{index}", id: "getAudit", tag: "Audit", summary: "Get an entry of the audit log", scopes: reads,
			description: "With a receipt that proves it, as the log stands now.",
			answers:     []reply{jsonReply[sandbox.AuditRecord](http.StatusOK, "The entry and its receipt.")}, errors: []int{http.StatusNotFound},
			example: `curl -s $SERVER/v1/audit/0 -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).auditLog, (*call).getAudit),
		},
	}
}

// auditLog is the server's log.
func (c *call) auditLog() (*audit.Log, error) {
	if c.o.Audit == nil {
		return nil, &sandbox.Error{Code: sandbox.CodeNotFound, Message: "this server keeps no audit log", Hint: "audit.enabled: true in its configuration begins one"}
	}
	return c.o.Audit, nil
}

func (c *call) listAudit() error {
	l, err := c.auditLog()
	if err != nil {
		return err
	}
	f := audit.Filter{
		Tenant: c.query.text("tenant"), Key: c.query.text("key"), IDs: c.query["id"], Drivers: c.query["driver"], Levels: c.query["isolation"], Secrets: c.query["secret"],
		Findings: c.query["finding"], Rules: c.query["rule"], By: c.query["decided_by"],
		Since: c.query.time("since"), Before: c.query.time("before"),
	}
	for _, k := range c.query["kind"] {
		f.Kinds = append(f.Kinds, sandbox.AuditKind(k))
	}
	for _, severity := range c.query["severity"] {
		f.Severities = append(f.Severities, sandbox.Severity(severity))
	}
	for _, st := range c.query["status"] {
		f.Statuses = append(f.Statuses, sandbox.Status(st))
	}
	if !c.who.Allows(scopeAdmin) {
		if f.Tenant != "" && f.Tenant != c.tenant() {
			return &sandbox.Error{Code: sandbox.CodeForbidden, Field: "tenant", Message: "the key may not see another tenant's entries", Hint: "use a key with the scope admin"}
		}
		f.Tenant = c.tenant()
	}
	page, next, err := l.List(f, c.query.int("cursor"), int(c.query.int("limit")))
	if err != nil {
		return err
	}
	out := items(page)
	if next >= 0 {
		out.Next = strconv.FormatInt(next, 10)
	}
	return c.reply(http.StatusOK, out)
}

func (c *call) getAudit(l *audit.Log) error {
	index, err := strconv.ParseInt(c.r.PathValue("index"), 10, 64)
	if err != nil {
		return audit.NoEntry()
	}
	entry, receipt, err := l.Entry(index)
	if err == nil && entry.Tenant != c.tenant() && !c.who.Allows(scopeAdmin) {
		err = audit.NoEntry()
	}
	return c.ok(sandbox.AuditRecord{Entry: entry, Receipt: receipt}, err)
}
