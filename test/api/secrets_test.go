package api

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/api"
	"pinfold/internal/secret/vault"
	"pinfold/sandbox"
)

func newVault(t *testing.T) *vault.Store {
	t.Helper()
	return openVault(t, t.TempDir())
}

func openVault(t *testing.T, dir string) *vault.Store {
	t.Helper()
	key, err := vault.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := vault.Open(dir, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func useSecrets(w *world) {
	w.t.Helper()
	w.must(200, request{key: "admin", method: "PUT", path: "/v1/secrets/token", body: sandbox.SetSecret{Hosts: []string{"A.test"}, Value: "canary-value"}})
	w.must(200, request{key: "admin", method: "GET", path: "/v1/secrets"})
	w.must(204, request{key: "admin", method: "DELETE", path: "/v1/secrets/token"})
}

// A secret that was given is not given back, to nobody, nor does it stand in the log or
// on the disk; its tenant alone knows that there is one, and only an administrator sets
// it.
func TestSecretsAreWriteOnly(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, func(s *settings) { s.api.Secrets = openVault(t, dir) })
	const canary = "canary-4f1e9c77"
	set := sandbox.SetSecret{Hosts: []string{"A.test"}, Header: "X-Key: {}", Value: canary}
	path := "/v1/secrets/token"
	for _, key := range []string{"run", "sandbox", "read", "alpha", "beta"} {
		w.must(403, request{key: key, method: "PUT", path: path, body: set})
		w.must(403, request{key: key, method: "DELETE", path: path})
	}
	answers := w.must(200, request{key: "admin", method: "PUT", path: path, body: set}).body
	var all api.List[sandbox.Secret]
	a := w.must(200, request{key: "admin", method: "GET", path: "/v1/secrets"})
	answers += a.body
	a.json(t, &all)
	if len(all.Items) != 1 || all.Items[0].Hosts[0] != "a.test" || all.Items[0].Header != "X-Key: {}" || all.Items[0].UpdatedAt.IsZero() {
		t.Errorf("%+v", all)
	}
	if a := w.must(200, request{key: "alpha", method: "GET", path: "/v1/secrets"}); strings.Contains(a.body, "token") {
		t.Errorf("another tenant sees %s", a.body)
	}
	for _, wrong := range []sandbox.SetSecret{
		{Hosts: []string{"a.test"}, Value: "short" + canary + "\n"},
		{Value: canary},
		{Hosts: []string{"*.a.test"}, Value: canary},
		{Hosts: []string{"a.test"}, Header: "Host: {}", Value: canary},
		{Hosts: []string{"a.test"}, Header: "X: {}", Query: "key", Value: canary},
		{Hosts: []string{"a.test"}, Header: "X: value", Value: canary},
	} {
		answers += w.must(400, request{key: "admin", method: "PUT", path: path, body: wrong}).body
	}
	answers += w.must(400, request{key: "admin", method: "PUT", path: "/v1/secrets/Token..", body: set}).body
	if strings.Contains(answers, canary) {
		t.Errorf("an answer has it: %s", answers)
	}
	if strings.Contains(w.log.String(), canary) {
		t.Errorf("the log has it: %s", w.log.String())
	}
	files := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		content, err := os.ReadFile(name)
		if info, _ := d.Info(); strings.Contains(string(content), canary) || strings.Contains(string(content), "a.test") || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has it, or may be read by others", name)
		}
		return err
	})
	if files != 1 || err != nil {
		t.Errorf("%d files %v", files, err)
	}
	w.must(204, request{key: "admin", method: "DELETE", path: path})
	w.must(404, request{key: "admin", method: "DELETE", path: path})
}

// A server without a key keeps no secrets, and says how it would.
func TestNoSecretsWithoutAKey(t *testing.T) {
	w := newWorld(t, nil)
	if a := w.must(200, request{key: "admin", method: "GET", path: "/v1/secrets"}); strings.TrimSpace(a.body) != `{"items":[]}` {
		t.Errorf("the list: %s", a.body)
	}
	for _, r := range []request{{method: "PUT", path: "/v1/secrets/x", body: sandbox.SetSecret{Hosts: []string{"a.test"}, Value: "12345678"}}, {method: "DELETE", path: "/v1/secrets/x"}} {
		r.key = "admin"
		if a := w.must(400, r); !strings.Contains(a.body, "secrets.key_file") {
			t.Errorf("%s: %s", r.method, a.body)
		}
	}
}
