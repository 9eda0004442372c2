package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"pinfold/client"
)

// A copy of a stdin that says nothing ends when its context does.
func TestCopyOfAnIdleStdinEnds(t *testing.T) {
	began := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 3))
		close(began)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer server.Close()
	idle, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	defer open.Close()
	if _, err := open.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	a := &app{Deps: Deps{Stdin: idle}}
	if _, err := a.copyIn(ctx, c.Sandbox("sbx_a"), fromStdin, "x", false); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
