package image

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Java's own keytool reads the store, without a password, and finds whom to trust; what
// is no certificate is not in it.
func TestJavaReadsTheTrustStore(t *testing.T) {
	keytool, err := exec.LookPath("keytool")
	if err != nil && os.Getenv("PINFOLD_TEST_ALL") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("there is no keytool: apt-get install openjdk-17-jdk-headless")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "one of all"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	one := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")})
	store := filepath.Join(t.TempDir(), "trust.p12")
	if err := os.WriteFile(store, javaTrust(trustBags(append(broken, one...)), trustBags(one)), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), keytool, "-list", "-v", "-keystore", store).CombinedOutput()
	if err != nil || strings.Count(string(said), "trustedCertEntry") != 2 || !strings.Contains(string(said), "CN=one of all") {
		t.Errorf("%v: %s", err, said)
	}
}
