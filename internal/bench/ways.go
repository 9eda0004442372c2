package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pinfold/internal/bench/load"
	"pinfold/sandbox"
)

// Names of what is asked. The two with TLS are one server: whether TLS is passed through or
// ended on the way is the declaration's affair.
const (
	hostPlain = "plain.test"
	hostTLS   = "tls.test"
	hostEnded = "ended.test"
)

// ways are two servers on loopback, HTTP and HTTPS, and the ways to them.
type ways struct {
	plain, secure string // addresses
	ca            string // PEM, which signed the certificate
	caFile        string
	program       string // this program, as the client

	proxy    map[string]string // by name, the address of a proxy that leads there; nil: none
	proxyWhy string
	proxyIs  string
	server   *server // whose sandboxes may reach the names
}

// openWays starts the servers, the proxy and a Pinfold server. They are ended with the session.
func (s *session) openWays() (*ways, error) {
	w := &ways{caFile: filepath.Join(s.dir, "ca.pem"), program: filepath.Join(s.dir, "client")}
	if err := copyProgram(w.program); err != nil {
		return nil, err
	}
	cert, err := w.certificate()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(w.caFile, []byte(w.ca), 0o600); err != nil {
		return nil, err
	}
	for _, at := range []struct {
		address *string
		tls     *tls.Config
	}{{&w.plain, nil}, {&w.secure, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}}} {
		l, err := (&net.ListenConfig{}).Listen(s.ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*at.address = l.Addr().String()
		if at.tls != nil {
			l = tls.NewListener(l, at.tls)
		}
		srv := &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Minute}
		go srv.Serve(l) //nolint:errcheck // until it is closed
		s.closers = append(s.closers, srv.Close)
	}
	w.openProxy(s, cert)
	w.server, err = s.launch("network", fmt.Sprintf(serverConfig, fmt.Sprintf("  - {name: %sprint, language: python, min: %d}\n", warmPrefix, poolSize))+w.allowed(),
		"SSL_CERT_FILE="+w.caFile)
	return w, err
}

// answer is a small answer, or as many bytes as the query says.
func answer(rw http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if err != nil {
		_, _ = io.WriteString(rw, strings.Repeat("x", 100)) // who asked may be gone
		return
	}
	rw.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	block := make([]byte, 256<<10)
	for ; n > 0; n -= int64(len(block)) {
		if _, err := rw.Write(block[:min(n, int64(len(block)))]); err != nil {
			return
		}
	}
}

// copyProgram copies the program that runs, to be the client: inside, too.
func copyProgram(to string) error {
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer in.Close()                                            //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700) //nolint:gosec // a program
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// certificate makes an authority for an hour or two, and what it signs for the names.
func (w *ways) certificate() (cert tls.Certificate, err error) {
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pinfold bench"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: hostTLS}, DNSNames: []string{hostTLS, hostEnded}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, err
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, authority.Public(), authority)
	if err != nil {
		return cert, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), authority)
	if err != nil {
		return cert, err
	}
	w.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// proxyProgram is the proxy that is measured beside: Debian has it, and it does both.
const proxyProgram = "haproxy"

// proxyConfig takes the addresses in front and behind, and the files. What it does at the
// last is what an endpoint with methods and paths does.
const proxyConfig = `
defaults
  timeout connect 10s
  timeout client 60s
  timeout server 60s
listen plain
  mode tcp
  bind %[1]s
  server target %[4]s
listen tls
  mode tcp
  bind %[2]s
  server target %[5]s
listen ended
  mode http
  bind %[3]s ssl crt %[6]s
  http-request deny unless METH_GET { path_beg / }
  server target %[5]s ssl verify required ca-file %[7]s sni str(ended.test)
`

// openProxy starts the proxy, or says why there is none.
func (w *ways) openProxy(s *session, cert tls.Certificate) {
	path, err := exec.LookPath(proxyProgram)
	if err != nil {
		w.proxyWhy = proxyProgram + " is not installed (apt-get install haproxy)"
		return
	}
	if err := w.startProxy(s, path, cert); err != nil {
		w.proxy, w.proxyWhy = nil, fmt.Sprintf("%s does not work here: %v", proxyProgram, err)
	}
}

func (w *ways) startProxy(s *session, path string, cert tls.Certificate) error {
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	crt, file := filepath.Join(s.dir, "proxy.pem"), filepath.Join(s.dir, "proxy.cfg")
	if err := os.WriteFile(crt, both, 0o600); err != nil {
		return err
	}
	w.proxy = map[string]string{}
	for _, name := range []string{hostPlain, hostTLS, hostEnded} {
		if w.proxy[name], err = freeAddress(s.ctx); err != nil {
			return err
		}
	}
	text := fmt.Sprintf(proxyConfig, w.proxy[hostPlain], w.proxy[hostTLS], w.proxy[hostEnded], w.plain, w.secure, crt, w.caFile)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if said, _, err := execute(s.ctx, []string{path, "-v"}); err == nil {
		w.proxyIs, _, _ = strings.Cut(strings.TrimSpace(said), " - ")
	}
	c, err := startChild([]string{path, "-db", "-f", file})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { _ = c.stop(); return nil }) // how it ends is its own affair
	for deadline := time.Now().Add(10 * time.Second); ; s.sleep(20 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(s.ctx, "tcp", w.proxy[hostEnded])
		if err == nil {
			return conn.Close()
		}
		if c.ended() || time.Now().After(deadline) || s.ctx.Err() != nil {
			return fmt.Errorf("%w: %s", err, c.lastLine())
		}
	}
}

// address is where a name's server is.
func (w *ways) address(host string) string {
	if host == hostPlain {
		return w.plain
	}
	return w.secure
}

func (w *ways) port(host string) int {
	_, port, _ := net.SplitHostPort(w.address(host))
	n, _ := strconv.Atoi(port) // a listener's
	return n
}

// allowed is the operator's word for the names.
func (w *ways) allowed() string {
	return fmt.Sprintf("network:\n  allow: [\"%s:%d=127.0.0.1\", \"%s:%d=127.0.0.1\", \"%s:%d=127.0.0.1\"]\n",
		hostPlain, w.port(hostPlain), hostTLS, w.port(hostTLS), hostEnded, w.port(hostEnded))
}

// declared are the three endpoints. TLS is ended at the last, where its requests are read.
func (w *ways) declared() sandbox.Network {
	n := w.passing(hostPlain, hostTLS, hostEnded)
	n.Endpoints[2].Methods, n.Endpoints[2].Paths = []string{http.MethodGet}, []string{"/", "/**"}
	return n
}

// passing are endpoints at which nothing is ended.
func (w *ways) passing(hosts ...string) sandbox.Network {
	var n sandbox.Network
	for _, host := range hosts {
		n.Endpoints = append(n.Endpoints, sandbox.Endpoint{Host: host, Ports: []int{w.port(host)}})
	}
	return n
}

// reading are the endpoints where at each of them requests are read.
func (w *ways) reading() sandbox.Network {
	n := w.passing(hostPlain, hostTLS, hostEnded)
	for i := range n.Endpoints {
		n.Endpoints[i].Paths = []string{"/**"}
	}
	return n
}

// url is what a client asks for.
func (w *ways) url(host, query string) string {
	scheme := "https"
	if host == hostPlain {
		scheme = "http"
	}
	return fmt.Sprintf("%s://%s:%d/x%s", scheme, host, w.port(host), query)
}

// outside has a client do a task here.
func (w *ways) outside(ctx context.Context, t load.Task) (string, error) {
	t.CA = w.ca
	out, errs, err := execute(ctx, []string{w.program, load.Command, text(t)})
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, sandbox.SafeText(errs, 300))
	}
	return out, nil
}
