//go:build linux

package network

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/driver/drivertest"
)

// postgresServer is PostgreSQL's, where Debian has it.
const postgresServer = "/usr/lib/postgresql/*/bin/postgres"

// postgresStarts is how often a server may find its port taken.
const postgresStarts = 5

// servePostgres starts a PostgreSQL server on loopback that has TLS, trusts everybody and is
// gone with the test, and returns its port. It does not run as root: it refuses to.
func servePostgres(t *testing.T, certificate tls.Certificate) (port int) {
	t.Helper()
	found, err := filepath.Glob(postgresServer)
	if err != nil || len(found) == 0 {
		drivertest.Missing(t, "there is no %s", postgresServer)
	}
	dir, err := os.MkdirTemp("", "pinfold-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	var who *syscall.Credential
	for name, content := range map[string][]byte{
		"server.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		"server.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		who = own(t, "postgres", dir, "server.crt", "server.key")
	}
	data := filepath.Join(dir, "data")
	run := func(program string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(filepath.Dir(found[0]), program), args...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	if out, err := run("initdb", "-D", data, "-A", "trust", "-U", "u", "-E", "UTF8", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	for range postgresStarts {
		l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free, unless another takes it
		if err != nil {
			t.Fatal(err)
		}
		port = l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		var said bytes.Buffer
		server := run("postgres", "-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", "", "-F",
			"-c", "ssl=on", "-c", "ssl_cert_file="+filepath.Join(dir, "server.crt"), "-c", "ssl_key_file="+filepath.Join(dir, "server.key"))
		server.Stdout, server.Stderr = &said, &said
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = server.Wait(); close(ended) }()
		if serves(port, ended) {
			t.Cleanup(func() {
				_ = server.Process.Signal(syscall.SIGINT) // which ends it without waiting for clients
				<-ended
			})
			return port
		}
		<-ended
		if !strings.Contains(said.String(), "in use") {
			t.Fatalf("postgres ended:\n%s", said.String())
		}
	}
	t.Fatal("every port was taken by somebody else")
	return 0
}

// serves waits until a port takes connections, or its server has ended.
func serves(port int, ended <-chan struct{}) bool {
	for {
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = c.Close()
		}
		select {
		case <-ended:
			return false
		case <-time.After(20 * time.Millisecond):
			if err == nil { // and it was not another's, since the server goes on
				return true
			}
		}
	}
}

// own gives a directory and files in it to a user.
func own(t *testing.T, name, dir string, files ...string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		drivertest.Missing(t, "there is no user %s: %v", name, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	err = errors.Join(err, gidErr, os.Chown(dir, int(uid), int(gid))) //nolint:gosec // 32 bits
	for _, f := range files {
		err = errors.Join(err, os.Chown(filepath.Join(dir, f), int(uid), int(gid))) //nolint:gosec // 32 bits
	}
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
