package engineimage

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// engine plays a container engine on a socket.
func engine(t *testing.T, answer http.HandlerFunc) (host string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: answer}} //nolint:gosec // of the test
	server.Start()
	t.Cleanup(server.Close)
	return "unix://" + socket
}

func TestSave(t *testing.T) {
	host := engine(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/images/docker.io%2Flibrary%2Fpython:3.13/get":
			_, _ = w.Write([]byte("archive"))
		case "/images/..%2F..%2Fcontainers/get":
			http.Error(w, `{"message":"invalid reference \u001b[31m"}`, http.StatusBadRequest)
		default:
			http.Error(w, `{"message":"No such image"}`, http.StatusNotFound)
		}
	})
	r, err := Save(t.Context(), host, "docker.io/library/python:3.13")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "archive" {
		t.Errorf("%q, %v", b, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	gone := "unix://" + filepath.Join(t.TempDir(), "gone")
	for _, c := range []struct{ host, image, code, says string }{
		{host, "nothing", sandbox.CodeNotFound, "No such image"},
		{host, "../../containers", sandbox.CodeInternal, "invalid reference"}, // it stays one name
		{gone, "python", sandbox.CodeDisconnected, "no container engine answers"},
		{"tcp://example.test:2375", "python", sandbox.CodeSpecInvalid, "not on this machine"},
	} {
		_, err := Save(t.Context(), c.host, c.image)
		if err == nil || sandbox.AsError(err).Code != c.code || !strings.Contains(err.Error(), c.says) || strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%s: %v", c.image, err)
		}
	}
}

// Whoever does not want to wait for an engine that says nothing need not.
func TestSaveIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	host := engine(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := Save(ctx, host, "python"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
