package access_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/internal/access"
	"pinfold/internal/engine/admission"
	"pinfold/internal/store"
	"pinfold/sandbox"
)

// TestRevokedBesideTheServer revokes a key as `pinfold key revoke` does, while
// a server has the state open, and waits for the server to see it.
func TestRevokedBesideTheServer(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	server := access.NewService(access.Options{Store: db})
	beside, err := store.Attach(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	command := access.NewService(access.Options{Store: beside})
	k, secret, err := command.Create(t.Context(), "acme", "ci", []string{access.ScopeRun}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := server.Authenticate(t.Context(), secret); err != nil || p.Tenant != "acme" {
		t.Fatal(p, err)
	}
	if err := command.SetQuota(t.Context(), "acme", admission.Quota{Sandboxes: 2}); err != nil {
		t.Fatal(err)
	}
	if q := server.Quota("acme"); q.Sandboxes != 2 {
		t.Fatal(q)
	}
	keys, err := server.List(t.Context(), "acme")
	if err != nil || len(keys) != 1 || keys[0].LastUsedAt == nil {
		t.Fatalf("%+v %v", keys, err)
	}
	if _, err := command.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	for tries := 0; ; tries++ {
		_, err = server.Authenticate(t.Context(), secret)
		if err != nil {
			break
		}
		if tries > 3000 {
			t.Fatal("the server does not see that the key was revoked")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if e := sandbox.AsError(err); e.Code != sandbox.CodeUnauthorized || !strings.Contains(e.Message, "revoked") {
		t.Fatal(err)
	}
	if _, made, err := server.EnsureFirstKey(t.Context(), func(string) error { t.Error("a key was made"); return nil }); made || err != nil {
		t.Fatal("there are keys already", made, err)
	}
	tenants, err := server.Tenants(t.Context())
	if err != nil || len(tenants) != 1 || tenants[0].Name != "acme" {
		t.Fatal(tenants, err)
	}
	nothingSecretOnDisk(t, dir, secret)
}

func nothingSecretOnDisk(t *testing.T, dir, secret string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	id := strings.Split(secret, "_")[1]
	found := false
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found = found || strings.Contains(string(content), id)
		if strings.Contains(string(content), secret[len(secret)-12:]) {
			t.Errorf("the secret is in %s", f.Name())
		}
	}
	if !found {
		t.Error("the search does not even find the key's id")
	}
}
