package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pinfold/internal/config/defaults"
	"pinfold/sandbox"
)

func (c *Config) checkListen() error {
	if len(c.Listen) == 0 {
		return c.at("listen", "no address to listen on").WithHint("leave it out for " + defaults.Listen)
	}
	if len(c.Listen) > maxListen {
		return c.at("listen", "more than %d addresses", maxListen)
	}
	for i, address := range c.Listen {
		field := fmt.Sprintf("listen[%d]", i)
		if slices.Contains(c.Listen[:i], address) {
			return c.at(field, "the address is given twice: %s", sandbox.SafeText(address, 100))
		}
		if err := c.checkAddress(field, address); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkAddress(field, address string) error {
	if path, unix := strings.CutPrefix(address, UnixPrefix); unix {
		switch {
		case !filepath.IsAbs(path) || path != filepath.Clean(path) || !printable(path):
			return c.at(field, "\"%s\" is not the absolute path of a socket", sandbox.SafeText(path, 100)).WithHint("unix:/run/pinfold/pinfold.sock")
		case len(path) > maxUnixPath:
			return c.at(field, "the path is longer than the %d bytes that a socket's may have", maxUnixPath)
		}
		return nil
	}
	shown := sandbox.SafeText(address, 100)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return c.at(field, "\"%s\" is not an address", shown).WithHint("write 127.0.0.1:7463, [::1]:7463 or unix:/run/pinfold/pinfold.sock")
	}
	if !isPort(port) {
		return c.at(field, "\"%s\": the port must be a number up to 65535", shown).WithHint("0 takes any free port")
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && host != "localhost" {
		return c.at(field, "\"%s\": the host must be an IP address, or localhost", shown).WithHint("0.0.0.0 and [::] mean every address of this machine")
	}
	if !Loopback(address) && c.TLS.Cert == "" && !c.InsecureListen {
		return c.at(field, "%s can be reached from other machines, and without TLS anybody on the way can read the keys", shown).
			WithHint("give --tls-cert and --tls-key; or listen on " + defaults.Listen + " behind a proxy that has TLS; or, in a network that you trust, --insecure-listen")
	}
	return nil
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// Loopback says whether only this machine reaches an address of Config.Listen.
func Loopback(address string) bool {
	if strings.HasPrefix(address, UnixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}

func (c *Config) checkTLS() error {
	switch {
	case c.TLS.Cert != "" && c.TLS.Key == "":
		return c.at("tls.key", "a certificate needs its key").WithHint("--tls-key FILE")
	case c.TLS.Key != "" && c.TLS.Cert == "":
		return c.at("tls.cert", "a key needs its certificate").WithHint("--tls-cert FILE")
	case !printable(c.TLS.Cert):
		return c.at("tls.cert", "is not the name of a file")
	case !printable(c.TLS.Key):
		return c.at("tls.key", "is not the name of a file")
	}
	return nil
}
