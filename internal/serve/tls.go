package serve

import (
	"crypto/tls"
	"sync/atomic"

	"pinfold/internal/config"
	"pinfold/sandbox"
)

// certificate is the server's, which may be renewed while it runs.
type certificate struct {
	now atomic.Pointer[tls.Certificate]
}

// loadCertificate returns nil when none is configured.
func loadCertificate(files config.TLS) (*certificate, error) {
	if files.Cert == "" {
		return nil, nil
	}
	c := &certificate{}
	return c, c.load(files)
}

// load reads the files. After an error the certificate is what it was.
func (c *certificate) load(files config.TLS) error {
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return &sandbox.Error{
			Code: sandbox.CodeConfigInvalid, Field: "tls", Message: "the certificate cannot be used: " + sandbox.SafeText(err.Error(), 200),
			Hint: "both files are PEM; the certificate comes first in its file, then its chain", Err: err,
		}
	}
	c.now.Store(&pair)
	return nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
	}
}
