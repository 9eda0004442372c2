package image

import (
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// Where programs of a sandbox find the certificate of its own authority, alone and behind
// those of everybody else whom they trust.
const (
	authorityFile = "/etc/pinfold/authority.pem"
	trustFile     = "/etc/pinfold/trust.pem"
	javaTrustFile = "/etc/pinfold/trust.p12" // the same, as Java reads it
)

// authorityEnv is how programs learn of it. Node's adds to what it trusts, the others'
// take its place. Java has no variable but those that add options; this one is of the java
// command alone, so that compilers say nothing of it.
var authorityEnv = map[string]string{
	"SSL_CERT_FILE":       trustFile, // OpenSSL, Python, Go, Ruby
	"REQUESTS_CA_BUNDLE":  trustFile,
	"CURL_CA_BUNDLE":      trustFile,
	"GIT_SSL_CAINFO":      trustFile,
	"PIP_CERT":            trustFile,
	"npm_config_cafile":   trustFile, // it does not heed Node's
	"NODE_EXTRA_CA_CERTS": authorityFile,
	"JDK_JAVA_OPTIONS":    "-Djavax.net.ssl.trustStore=" + javaTrustFile,
}

// AuthorityEnv are the variables of programs in a sandbox that WithAuthority was for.
func AuthorityEnv() map[string]string { return maps.Clone(authorityEnv) }

// WithAuthority is the template of a sandbox whose programs trust one authority more, or
// alone: where it signs for all that they reach, they need no other, and two lists of 200 kB
// each stay out of the sandbox's memory. The certificate is in PEM.
func (t Template) WithAuthority(certificate []byte, alone bool) Template {
	t.Dirs = append(slices.Clone(t.Dirs), Dir{Path: "/etc/pinfold", Mode: 0o755})
	var everybody, bags []byte
	if !alone {
		everybody, bags = hostTrust.read()
	}
	t.Files = append(slices.Clone(t.Files),
		File{Path: authorityFile, Mode: 0o644, Content: certificate},
		File{Path: trustFile, Mode: 0o644, Content: slices.Concat(everybody, []byte("\n"), certificate)},
		File{Path: javaTrustFile, Mode: 0o644, Content: javaTrust(bags, trustBags(certificate))})
	return t
}

// trustFiles are where hosts keep whom they trust, all in one file.
var trustFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// maxTrust bounds that file, in bytes.
const maxTrust = 2 << 20

// trusted is the content of that file, as it is now. It is safe for concurrent use.
type trusted struct {
	mu      sync.Mutex
	path    string
	size    int64
	changed time.Time
	content []byte
	bags    []byte // of it
}

var hostTrust trusted

// read returns it, in PEM and as entries of a store for Java, or nothing where there is none.
func (t *trusted) read() (content, bags []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, path := range trustFiles {
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() || st.Size() > maxTrust {
			continue
		}
		if path == t.path && st.Size() == t.size && st.ModTime().Equal(t.changed) {
			return t.content, t.bags
		}
		f, err := os.Open(path) //nolint:gosec // one of the list
		if err != nil {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(f, maxTrust))
		_ = f.Close()
		if err == nil {
			t.path, t.size, t.changed, t.content, t.bags = path, st.Size(), st.ModTime(), content, trustBags(content)
			return t.content, t.bags
		}
	}
	return nil, nil
}
