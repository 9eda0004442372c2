package egress

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
	"slices"
	"strings"
	"sync"
	"time"

	"pinfold/sandbox"
)

// How long certificates hold. An authority's key is in memory alone, and gone with its
// sandbox; what it has signed is trusted nowhere else.
const (
	authorityLife = 30 * 24 * time.Hour // a sandbox's life can be extended
	hostLife      = 24 * time.Hour
	clockSkew     = time.Hour
)

// Authority signs for the hosts at which TLS is ended for one sandbox, and for no other. It
// is safe for concurrent use.
type Authority struct {
	hosts       []string
	alone       bool // nothing else is declared: programs trust nobody but it
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	hostKey     *ecdsa.PrivateKey // of all hosts' certificates

	mu     sync.Mutex
	signed map[string]*tls.Certificate
}

// NewAuthority makes the authority of a sandbox with that declaration, which must be
// canonical. It is nil where nothing wants one.
func NewAuthority(n sandbox.Network) (*Authority, error) {
	a := &Authority{alone: n.Ruled(), signed: map[string]*tls.Certificate{}}
	for _, e := range n.Endpoints {
		if e.Ruled() && !slices.Contains(a.hosts, e.Host) {
			a.hosts = append(a.hosts, e.Host)
		}
	}
	if len(a.hosts) == 0 {
		return nil, nil
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if a.hostKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	template := newCertificate("Pinfold, of one sandbox", authorityLife)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	template.PermittedDNSDomainsCritical = true
	for _, host := range a.hosts { // each stands for all below it, too; only what is asked for is signed
		template.PermittedDNSDomains = append(template.PermittedDNSDomains, strings.TrimPrefix(host, sandbox.Wildcard))
	}
	template.ExcludedIPRanges = []*net.IPNet{
		{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	a.certificate, err = x509.ParseCertificate(der)
	return a, err
}

func newCertificate(name string, life time.Duration) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // it never fails
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(life),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// PEM is the authority's certificate, for programs to trust; nil where there is none.
func (a *Authority) PEM() []byte {
	if a == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// signs says whether programs inside trust it for a host.
func (a *Authority) signs(host string) bool { return a != nil && slices.Contains(a.hosts, host) }

// only says whether programs inside trust nobody else.
func (a *Authority) only() bool { return a != nil && a.alone }

// of returns the certificate of a host.
func (a *Authority) of(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.signed[host]; c != nil && time.Until(c.Leaf.NotAfter) > hostLife/2 {
		return c, nil
	}
	template := newCertificate("Pinfold, for one host", hostLife)
	template.KeyUsage, template.DNSNames = x509.KeyUsageDigitalSignature, []string{host}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, a.hostKey.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.hostKey, Leaf: leaf}
	a.signed[host] = c
	return c, nil
}
