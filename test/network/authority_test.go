//go:build linux

package network

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"testing"
	"time"
)

// testAuthority signs for the servers of these tests.
type testAuthority struct {
	root *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

var authority testAuthority

// TestMain has the host trust that authority, as it trusts those of the system.
func TestMain(m *testing.M) {
	code, err := withAuthority(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withAuthority(run func() int) (code int, err error) {
	if authority.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return 0, err
	}
	authority.root = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, authority.root, authority.root, authority.key.Public(), authority.key)
	if err != nil {
		return 0, err
	}
	authority.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	file, err := os.CreateTemp("", "pinfold-network-test-")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	_, err = file.WriteString(authority.pem)
	// Without a name it is left by nobody, not by who is killed either.
	if err = errors.Join(err, os.Remove(file.Name()), os.Setenv("SSL_CERT_FILE", fmt.Sprintf("/proc/self/fd/%d", file.Fd()))); err != nil {
		return 0, err
	}
	return run(), nil
}

// certificate makes a certificate for a host.
func (a testAuthority) certificate(t *testing.T, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: a.root.NotBefore, NotAfter: a.root.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.root, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
