//go:build linux

package network

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cgi" //nolint:gosec // a test's own, of requests that the test makes
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"pinfold/test/packageindex"
)

// serveClients serves over TLS, as any name below a domain, what clients of all kinds want: a
// repository as git serves it, the indexes of pip and npm, a WebSocket, and a text.
func serveClients(t *testing.T, certificate tls.Certificate) net.Listener {
	t.Helper()
	gitDir, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	repositories := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(gitDir)), "git-http-backend"), Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + repository(t), "GIT_HTTP_EXPORT_ALL=1"},
	}
	mux := http.NewServeMux()
	mux.Handle("/git/", repositories)
	mux.Handle("/", packageindex.New(t).Config.Handler)
	mux.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		_ = c.Write(r.Context(), websocket.MessageText, []byte("reached by WebSocket"))
		_, _, _ = c.Read(r.Context()) // until it goes
	})
	mux.HandleFunc("/text", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "reached over "+r.Proto+"\n") })
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.Listener
}

// Codes in the place of a version with which a connection to PostgreSQL begins, and the
// version.
const (
	postgresTLS = 80877103
	postgresGSS = 80877104
	postgresV3  = 3 << 16
)

// servePostgres speaks PostgreSQL's protocol, version 3, as far as psql needs it: in TLS, to
// everybody, it answers each query with one row, in which is the query.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
func servePostgres(t *testing.T, certificate tls.Certificate) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				defer c.Close()
				if err := postgresSession(c, certificate); err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
					t.Log("psql's connection:", err)
				}
			}()
		}
	}()
	return l
}

func postgresSession(c net.Conn, certificate tls.Certificate) error {
	for begun := false; !begun; {
		first, err := postgresBody(c)
		if err != nil || len(first) < 4 {
			return errors.Join(err, errors.New("it does not begin"))
		}
		switch code := binary.BigEndian.Uint32(first); code {
		case postgresGSS:
			_, err = io.WriteString(c, "N")
		case postgresTLS:
			_, err = io.WriteString(c, "S")
			c = tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}})
		case postgresV3:
			begun = true
			_, err = c.Write(append(postgresMessage('R', "\x00\x00\x00\x00"), postgresMessage('Z', "I")...)) // authenticated, ready
		default:
			err = errors.New("it begins with an unknown code")
		}
		if err != nil {
			return err
		}
	}
	for kind := make([]byte, 1); ; {
		if _, err := io.ReadFull(c, kind); err != nil {
			return err
		}
		body, err := postgresBody(c)
		if err != nil || kind[0] != 'Q' { // it takes its leave
			return err
		}
		row := "reached by " + strings.TrimRight(string(body), "\x00")
		var answer []byte
		for _, m := range [][]byte{
			postgresMessage('T', "\x00\x01row\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x19\xff\xff\xff\xff\xff\xff\x00\x00"), // one column, of text
			postgresMessage('D', "\x00\x01"+string(binary.BigEndian.AppendUint32(nil, uint32(len(row))))+row),               //nolint:gosec // short
			postgresMessage('C', "SELECT 1\x00"), postgresMessage('Z', "I"),
		} {
			answer = append(answer, m...)
		}
		if _, err := c.Write(answer); err != nil {
			return err
		}
	}
}

// postgresBody reads the rest of a message behind its kind.
func postgresBody(c net.Conn) ([]byte, error) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(c, size); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size)
	if n < 4 || n > 1<<16 {
		return nil, errors.New("a message of a wrong size")
	}
	body := make([]byte, n-4)
	_, err := io.ReadFull(c, body)
	return body, err
}

func postgresMessage(kind byte, body string) []byte {
	m := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)) //nolint:gosec // short
	return append(m, body...)
}
