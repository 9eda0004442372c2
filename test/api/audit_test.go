package api

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"pinfold"
	"pinfold/internal/api"
	"pinfold/internal/audit"
	"pinfold/sandbox"
)

// withAudit gives a server an audit log, which is closed with the test.
func withAudit(t *testing.T, s *settings) *audit.Log {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(t.TempDir(), audit.Dir), Strict: true, KeepTexts: true, TextBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s.api.Audit, s.engine.Auditor = l, l
	return l
}

func useAudit(w *world) {
	w.t.Helper()
	w.must(200, request{key: "read", method: "GET", path: "/v1/audit"})
	w.must(200, request{key: "admin", method: "GET", path: "/v1/audit/0"})
	w.must(200, request{key: "run", method: "GET", path: "/v1/audit/checkpoint"})
}

// auditList lists entries with a query.
func (w *world) auditList(key, query string) []sandbox.AuditEntry {
	w.t.Helper()
	var all []sandbox.AuditEntry
	cursor := "0"
	for cursor != "" {
		var page api.List[sandbox.AuditEntry]
		w.must(200, request{key: key, method: "GET", path: "/v1/audit?limit=2&cursor=" + url.QueryEscape(cursor) + query}).json(w.t, &page)
		all = append(all, page.Items...)
		cursor = page.Next
	}
	return all
}

// A result has a receipt that proves it; a tenant sees its own entries and learns of no
// others, and the operator sees all of them.
func TestAuditLogIsEachTenantsOwn(t *testing.T) {
	var l *audit.Log
	w := newWorld(t, func(s *settings) { l = withAudit(t, s) })
	key, err := audit.ParseKey(l.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	spec := sandbox.Spec{Language: "sh", Code: "true"}
	mine := map[string]map[int64]bool{"alpha": {}, "beta": {}}
	for range 3 {
		for tenant, entries := range mine {
			var r sandbox.Result
			w.must(200, request{key: tenant, method: "POST", path: "/v1/runs", body: spec}).json(t, &r)
			if r.Receipt == nil {
				t.Fatal("a result without a receipt")
			}
			e, _, err := audit.VerifyReceipt(*r.Receipt, key)
			if err != nil || e.Tenant != tenant || e.Key == "" {
				t.Fatalf("%+v, %v", e, err)
			}
			if same, err := pinfold.VerifyResult(&r, l.PublicKey()); err != nil || same.ID != r.ID {
				t.Errorf("the result is not the one of its receipt: %v", err)
			}
			changed := r
			changed.Stdout += "more"
			if _, err := pinfold.VerifyResult(&changed, l.PublicKey()); err == nil {
				t.Error("a changed result is taken for the one of its receipt")
			}
			if err := audit.CheckContent(*r.Receipt, e, "code", []byte(spec.Code)); err != nil {
				t.Error(err)
			}
			entries[e.Index] = true
		}
	}
	for tenant, entries := range mine {
		listed := w.auditList(tenant, "&kind=run")
		for _, e := range listed {
			if e.Tenant != tenant || !entries[e.Index] {
				t.Errorf("%s sees %+v", tenant, e)
			}
		}
		if len(listed) != 3 {
			t.Errorf("%s sees %d entries", tenant, len(listed))
		}
		for index := range int64(7) {
			want := 404
			if entries[index] {
				want = 200
			}
			var r sandbox.AuditRecord
			a := w.must(want, request{key: tenant, method: "GET", path: fmt.Sprintf("/v1/audit/%d", index)})
			if want != 200 {
				continue
			}
			a.json(t, &r)
			if e, _, err := audit.VerifyReceipt(*r.Receipt, key); err != nil || e.ID != r.Entry.ID {
				t.Errorf("%+v, %v", e, err)
			}
		}
	}
	w.must(403, request{key: "alpha", method: "GET", path: "/v1/audit?tenant=beta"})
	w.must(403, request{key: "run", method: "GET", path: "/v1/audit"})
	w.must(404, request{key: "admin", method: "GET", path: "/v1/audit/x"})
	for query, want := range map[string]int{"": 6, "&tenant=beta": 3, "&status=succeeded&driver=fake": 6, "&status=killed": 0, "&since=2999-01-01T00:00:00Z": 0, "&kind=process": 0} {
		if n := len(w.auditList("admin", query)); n != want {
			t.Errorf("the operator sees %d entries of %q, not %d", n, query, want)
		}
	}
	var head sandbox.AuditCheckpoint
	w.must(200, request{key: "beta", method: "GET", path: "/v1/audit/checkpoint"}).json(t, &head)
	if head.Entries != 6 || head.PublicKey != l.PublicKey() {
		t.Errorf("%+v", head)
	}
}

// A server without an audit log says so, and its results have no receipts.
func TestNoAuditLog(t *testing.T) {
	w := newWorld(t, nil)
	var r sandbox.Result
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "true"}}).json(t, &r)
	if r.Receipt != nil || r.ReceiptMissing != nil {
		t.Errorf("%+v", r)
	}
	for _, path := range []string{"/v1/audit", "/v1/audit/0", "/v1/audit/checkpoint"} {
		w.must(404, request{key: "admin", method: "GET", path: path})
	}
}

// Who set and removed a secret stands in the log, and its value does not.
func TestSecretsAreAudited(t *testing.T) {
	const canary = "canary-80c4a1d2"
	var l *audit.Log
	w := newWorld(t, func(s *settings) { l = withAudit(t, s); s.api.Secrets = newVault(t) })
	w.must(200, request{key: "admin", method: "PUT", path: "/v1/secrets/token", body: sandbox.SetSecret{Hosts: []string{"a.test"}, Value: canary}})
	w.must(400, request{key: "admin", method: "PUT", path: "/v1/secrets/token", body: sandbox.SetSecret{Value: canary}})
	w.must(204, request{key: "admin", method: "DELETE", path: "/v1/secrets/token"})
	w.must(404, request{key: "admin", method: "DELETE", path: "/v1/secrets/token"})
	all := w.auditList("admin", "&secret=token")
	if len(all) != 2 || all[0].Kind != sandbox.AuditSecretSet || all[1].Kind != sandbox.AuditSecretRemoved {
		t.Fatalf("%+v", all)
	}
	for _, e := range all {
		if e.ID != "token" || e.Key == "" || e.StartedAt.IsZero() || strings.Contains(fmt.Sprintf("%+v", e), canary) {
			t.Errorf("%+v", e)
		}
	}
	if n := len(w.auditList("admin", "&secret=other")); n != 0 {
		t.Errorf("%d entries of another secret", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w.must(503, request{key: "admin", method: "PUT", path: "/v1/secrets/token", body: sandbox.SetSecret{Hosts: []string{"a.test"}, Value: canary}})
	var left api.List[sandbox.Secret]
	if w.must(200, request{key: "admin", method: "GET", path: "/v1/secrets"}).json(t, &left); len(left.Items) != 0 {
		t.Error("it was set, and nothing could be recorded")
	}
}
