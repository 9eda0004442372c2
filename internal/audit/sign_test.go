package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A signer has the same key after a restart, nobody else can read it, and what it has signed
// opens with its public key alone.
func TestSigner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifest")
	first, err := OpenSigner(dir, "first")
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenSigner(dir, "again")
	if err != nil || again.PublicKey() != first.PublicKey() {
		t.Fatal(again, err)
	}
	other, err := OpenSigner(t.TempDir(), "first")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, keyName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	public, err := os.ReadFile(KeyFile(dir))
	if err != nil || strings.TrimSpace(string(public)) != first.PublicKey() {
		t.Errorf("%s %v", public, err)
	}
	signed, err := again.Sign("a text\n")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseKey(string(public))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := key.Open(signed); err != nil || text != "a text\n" {
		t.Errorf("%q %v", text, err)
	}
	theirs, err := ParseKey(other.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "a text\n", strings.Replace(signed, "a text", "b text", 1), signed + strings.Repeat("x", maxNote)} {
		if _, err := key.Open(bad); err == nil {
			t.Errorf("%.60q opens", bad)
		}
	}
	if _, err := theirs.Open(signed); err == nil {
		t.Error("it opens with another key of the same name")
	}
	if err := os.Remove(KeyFile(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSigner(dir, "first"); err == nil {
		t.Error("a key without its public part is taken for a new one")
	}
}
