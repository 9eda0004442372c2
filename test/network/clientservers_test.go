//go:build linux

package network

import (
	"crypto/tls"
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
