package serve

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pinfold/internal/secret"
	"pinfold/internal/secret/vault"
	"pinfold/internal/store"
	"pinfold/sandbox"
)

// The key comes from the file, or from the environment, where nothing that is started finds
// it; a file that cannot be taken refuses the server, and no key means no secrets.
func TestKeyOfSecrets(t *testing.T) {
	state, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	key, err := vault.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(env, keyFile string) (*server, error) {
		t.Setenv(secret.KeyEnv, env)
		c := configure(t)
		c.Secrets.KeyFile = keyFile
		s := &server{config: c, store: state}
		err := s.openSecrets()
		if value, there := os.LookupEnv(secret.KeyEnv); there {
			t.Errorf("the environment has %q", value)
		}
		findings := Check(t.Context(), c, Options{NewEngine: fakeEngine(nil)})
		at := slices.IndexFunc(findings, func(f Finding) bool { return f.What == "secrets" })
		if (at >= 0) != (keyFile != "") || at >= 0 && findings[at].OK != (err == nil) {
			t.Errorf("%q: %+v", keyFile, findings)
		}
		return s, err
	}
	ctx := context.Background()
	s, err := open("", file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.secrets.Set(ctx, "team", "token", sandbox.SetSecret{Hosts: []string{"a.test"}, Value: "12345678"}); err != nil {
		t.Error(err)
	}
	if s, err = open(key, ""); err != nil {
		t.Fatal(err)
	}
	if all, err := s.secrets.List(ctx, "team"); err != nil || len(all) != 1 {
		t.Errorf("with the same key from the environment: %v %v", all, err)
	}
	if s, err := open("", ""); err != nil || s.secrets != nil {
		t.Errorf("without a key: %v %v", s.secrets, err)
	}
	if err := os.Chmod(file, 0o644); err != nil { //nolint:gosec // that is what is wrong
		t.Fatal(err)
	}
	for _, wrong := range [][2]string{{"", file}, {"", file + "x"}, {"no key", ""}} {
		if _, err := open(wrong[0], wrong[1]); sandbox.AsError(err) == nil || sandbox.AsError(err).Hint == "" {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
