package storetest

import (
	"context"
	"reflect"
	"testing"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// What is known of snapshots is a tenant's own, stays until that is removed, and comes back as
// it was.
func testSnapshots(t *testing.T, s records.Store) {
	ctx := context.Background()
	made := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	first := records.Snapshot{
		Tenant: "t", Image: "i", SHA256: []byte{0, 255}, Packages: sandbox.Packages{NPM: []string{"a@1.0.0"}}, Request: sandbox.Create{TTLMS: 5, Env: map[string]string{"odd": "\x00'\""}},
		Info: sandbox.Snapshot{
			ID: "snp_1", Name: "n", Sandbox: "sbx_1", Holds: []string{sandbox.SnapshotFiles}, Driver: "d", Template: "host", Limits: sandbox.DefaultLimits(),
			CreatedAt: made, ExpiresAt: made.Add(time.Hour), Bytes: 1 << 40, Files: 3, LeftOut: 1, PausedMS: 1.5, Metadata: map[string]string{"k": "v"},
		},
	}
	second, others := first, first
	second.Info.ID, second.Info.CreatedAt = "snp_0", made.Add(time.Second)
	others.Tenant = "u"
	for _, r := range []records.Snapshot{second, others, first} {
		if err := s.SaveSnapshot(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, s.SaveSnapshot(ctx, first), sandbox.CodeConflict)
	if got, err := s.LoadSnapshot(ctx, "t", "snp_1"); err != nil || !reflect.DeepEqual(got, first) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Prune(ctx, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*records.Snapshot{&first, &second, &others} {
		r.Request, r.Packages = sandbox.Create{}, sandbox.Packages{} // a hundred of them, each of megabytes, are not for a list
	}
	for tenant, want := range map[string][]records.Snapshot{"t": {first, second}, "u": {others}, "": {first, others, second}, "v": {}} {
		if got, err := s.ListSnapshots(ctx, tenant); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("of %q: %+v, %v", tenant, got, err)
		}
	}
	if err := s.RemoveSnapshot(ctx, "t", "snp_1"); err != nil {
		t.Fatal(err)
	}
	_, err := s.LoadSnapshot(ctx, "t", "snp_1")
	wantCode(t, err, sandbox.CodeNotFound)
	wantCode(t, s.RemoveSnapshot(ctx, "t", "snp_1"), sandbox.CodeNotFound)
	if _, err := s.LoadSnapshot(ctx, "u", "snp_1"); err != nil {
		t.Errorf("another tenant's went with it: %v", err)
	}
}
