package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/config"
)

// certify writes a self-signed certificate and its key.
func certify(t *testing.T, files config.TLS, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{files.Cert: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	c := configure(t)
	c.TLS = config.TLS{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "k.pem")}
	certify(t, c.TLS, 1)
	r := start(t, c, Options{Reload: func() (*config.Config, error) { return c, nil }})
	if !strings.HasPrefix(r.url, "https://") {
		t.Fatalf("said to be at %s", r.url)
	}
	address := strings.TrimPrefix(r.url, "https://")
	serial := func() int64 {
		t.Helper()
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a certificate of the test's
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	req, _ := http.NewRequest(http.MethodGet, r.url+"/healthz", nil)
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Errorf("status %d, HTTP %d", resp.StatusCode, resp.ProtoMajor)
	}
	if resp, err := http.Get("http://" + address + "/healthz"); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("answers without TLS")
		}
	}
	if _, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err == nil { //nolint:gosec // must fail
		t.Error("speaks TLS 1.1")
	}

	// A renewed certificate is taken over; a broken one is not.
	certify(t, c.TLS, 2)
	r.signals <- syscall.SIGHUP
	r.expectLog("was read again")
	if got := serial(); got != 2 {
		t.Errorf("certificate %d after the reload", got)
	}
	if err := os.WriteFile(c.TLS.Cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.signals <- syscall.SIGHUP
	r.expectLog("was not taken over")
	if got := serial(); got != 2 {
		t.Errorf("certificate %d after a broken reload", got)
	}
}
