package vault

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"pinfold/sandbox"
)

func open(t *testing.T, dir, key string) *Store {
	t.Helper()
	s, err := Open(dir, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newKey(t *testing.T) string {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var token = sandbox.SetSecret{Hosts: []string{"a.test"}, Value: "canary-4f1e9c77"}

// What is kept is there after a restart, for its tenant, under its key, and on the disk it
// cannot be read.
func TestKept(t *testing.T) {
	dir, key := t.TempDir(), newKey(t)
	s := open(t, dir, key)
	for _, name := range []string{"b", "a", "b"} {
		if _, err := s.Set(t.Context(), "team", name, token); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, key)
	if all, err := s.List(t.Context(), "team"); err != nil || len(all) != 2 || all[0].Name != "a" {
		t.Fatalf("%v %v", all, err)
	}
	if _, err := s.Find(t.Context(), "team", "a"); err != nil {
		t.Error(err)
	}
	for tenant, name := range map[string]string{"other": "a", "team": "c"} {
		if _, err := s.Find(t.Context(), tenant, name); sandbox.AsError(err).Code != sandbox.CodeNotFound {
			t.Errorf("%s %s: %v", tenant, name, err)
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, "team.age"))
	if err != nil || bytes.Contains(content, []byte("canary")) || bytes.Contains(content, []byte("a.test")) || !bytes.HasPrefix(content, []byte("age-encryption.org/v1")) {
		t.Errorf("%.100q %v", content, err)
	}
	if _, err := open(t, dir, newKey(t)).Find(t.Context(), "team", "a"); sandbox.AsError(err).Code != sandbox.CodeStateCorrupt {
		t.Errorf("with another key: %v", err)
	}
	if err := os.Rename(filepath.Join(dir, "team.age"), filepath.Join(dir, "other.age")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(t.Context(), "other", "a"); sandbox.AsError(err).Code != sandbox.CodeStateCorrupt {
		t.Errorf("another tenant's file: %v", err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(filepath.Join(dir, "team.age"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(t.Context(), "team", "a"); sandbox.AsError(err).Code != sandbox.CodeStateCorrupt {
		t.Errorf("a changed file: %v", err)
	}
}

func TestBounds(t *testing.T) {
	s := open(t, t.TempDir(), newKey(t))
	for i := range maxSecrets {
		if _, err := s.Set(t.Context(), "team", "s"+string(rune('a'+i/26))+string(rune('a'+i%26)), token); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Set(t.Context(), "team", "more", token); sandbox.AsError(err).Code != sandbox.CodeTooLarge {
		t.Error(err)
	}
	for _, tenant := range []string{"", "..", "../x", "a/b", `a\b`} {
		if _, err := s.Set(t.Context(), tenant, "a", token); sandbox.AsError(err).Field != "tenant" {
			t.Errorf("%q: %v", tenant, err)
		}
	}
}

func TestReadKey(t *testing.T) {
	file, key := filepath.Join(t.TempDir(), "key"), newKey(t)
	write := func(content string, mode os.FileMode) {
		if err := os.WriteFile(file, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("# made by age-keygen\n\n"+key+"\n", 0o600)
	if got, err := ReadKey(file); got != key || err != nil {
		t.Error(err)
	}
	write(key, 0o640)
	if _, err := ReadKey(file); sandbox.AsError(err).Field != "secrets.key_file" || sandbox.AsError(err).Hint == "" {
		t.Errorf("others may read it: %v", err)
	}
	write("\n", 0o600)
	if _, err := ReadKey(file); err == nil {
		t.Error("an empty file has a key")
	}
	write("AGE-SECRET-KEY-1CANARY", 0o600)
	if _, err := ReadKey(file); err == nil || bytes.Contains([]byte(err.Error()), []byte("CANARY")) {
		t.Errorf("what is no key: %v", err)
	}
	if _, err := ReadKey(file + "x"); err == nil {
		t.Error("a file that is not there has a key")
	}
	if _, err := Open(t.TempDir(), "AGE-SECRET-KEY-1CANARY"); err == nil || bytes.Contains([]byte(err.Error()), []byte("CANARY")) {
		t.Error(err)
	}
}
