package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// serve starts a server and returns a client of it.
func serve(t *testing.T, h http.HandlerFunc, opts ...client.Option) *client.Client {
	t.Helper()
	t.Setenv(client.KeyEnv, "")
	srv := httptest.NewServer(h)
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, code string) {
	answer(w, status, sandbox.ErrorBody{Error: &sandbox.Error{Code: code, Message: "no", Hint: "do", Field: "f"}})
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return sandbox.AsError(err).Code
}

func TestServerAddresses(t *testing.T) {
	t.Setenv(client.ServerEnv, "")
	for server, ok := range map[string]bool{
		"http://127.0.0.1:7463": true, "https://example.com": true, "unix:/run/p.sock": true, "unix:///run/p.sock": true,
		"https://example.com/behind/a/proxy/": true,
		"":                                    false, "localhost:7463": false, "ftp://x": false, "http://": false, "unix:": false, "unix:a/../b": false, "unix:p.sock": false,
		"http://user:pw@h": false, "http://h/?q=1": false, "http://h/#f": false, "http://h:port": false, "\x00": false,
	} {
		_, err := client.New(server)
		if (err == nil) != ok {
			t.Errorf("%q: %v", server, err)
		}
		if err != nil && (codeOf(err) != sandbox.CodeSpecInvalid || strings.Contains(err.Error(), "pw") || sandbox.AsError(err).Hint == "") {
			t.Errorf("%q: %+v", server, sandbox.AsError(err))
		}
	}
}

func TestAKeyWithALineEndIsRefusedAndNotShown(t *testing.T) {
	_, err := client.New("http://h", client.WithKey("pfk_secret\n"))
	if codeOf(err) != sandbox.CodeUnauthorized || strings.Contains(err.Error(), "secret") {
		t.Fatal(err)
	}
}

func TestErrorsAreAsTheServerSaidThem(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 409, sandbox.CodeConflict) })
	_, err := c.GetRun(t.Context(), "run_x")
	if e := sandbox.AsError(err); e.Code != sandbox.CodeConflict || e.Message != "no" || e.Hint != "do" || e.Field != "f" {
		t.Fatalf("%+v", e)
	}
}

func TestTheKeyTravelsInTheHeaderAndNotThroughARedirect(t *testing.T) {
	var other atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { other.Add(1) }))
	defer thief.Close()
	var seen string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Get("Authorization")
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
	}, client.WithKey("pfk_a"))
	_, err := c.WhoAmI(t.Context())
	if codeOf(err) != sandbox.CodeDisconnected || seen != "Bearer pfk_a" || other.Load() != 0 {
		t.Fatalf("%v; the key was %q; the other server had %d requests", err, seen, other.Load())
	}
}

func TestAFullServerIsAskedAgain(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		var n atomic.Int64
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) < 3 {
				w.Header().Set("Retry-After", "0")
				refuse(w, status, sandbox.CodeBusy)
				return
			}
			answer(w, 200, map[string]any{"tenant": "t"})
		})
		who, err := c.WhoAmI(t.Context())
		if err != nil || who.Tenant != "t" || n.Load() != 3 {
			t.Fatalf("%+v, %v after %d requests", who, err, n.Load())
		}
	}
}

func TestWhatIsNotSafeToRepeatIsNotRepeated(t *testing.T) {
	var n atomic.Int64
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Retry-After", "0")
		refuse(w, 429, sandbox.CodeBusy)
	})
	spec := sandbox.Spec{Language: "sh", Code: "true"}
	calls := map[string]func() error{
		"run":    func() error { _, err := c.Run(t.Context(), spec, client.RunOptions{}); return err },
		"create": func() error { _, err := c.Create(t.Context(), sandbox.Create{}); return err },
		"start": func() error {
			_, err := c.Sandbox("s").Start(t.Context(), sandbox.Command{Shell: "true"})
			return err
		},
		"write": func() error {
			return c.Sandbox("s").WriteFile(t.Context(), "f", 0, 1, strings.NewReader("x"))
		},
	}
	for name, f := range calls {
		n.Store(0)
		if err := f(); codeOf(err) != sandbox.CodeBusy || n.Load() != 1 {
			t.Errorf("%s: %v after %d requests", name, err, n.Load())
		}
	}
}

func TestPatienceIsBounded(t *testing.T) {
	var n atomic.Int64
	full := func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Retry-After", "3600")
		refuse(w, 429, sandbox.CodeBusy)
	}
	c := serve(t, full, client.WithPatience(time.Second))
	if _, err := c.WhoAmI(t.Context()); codeOf(err) != sandbox.CodeBusy || n.Load() != 1 {
		t.Fatalf("%v after %d requests", err, n.Load())
	}
	c = serve(t, full, client.WithPatience(24*time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.WhoAmI(ctx); codeOf(err) != sandbox.CodeDisconnected || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	c, err := client.New("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	e := sandbox.AsError(c.Health(t.Context()))
	if e == nil || e.Code != sandbox.CodeDisconnected || !strings.Contains(e.Message, "refused") || !strings.Contains(e.Hint, "curl http://127.0.0.1:") {
		t.Fatalf("%+v", e)
	}
}

// TestHTTPAndHTTPSAreToldApart: the hint was once to ask the same address again.
func TestHTTPAndHTTPSAreToldApart(t *testing.T) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain, secure := httptest.NewServer(nothing), httptest.NewUnstartedServer(nothing)
	t.Cleanup(plain.Close)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // what it says is expected
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for _, c := range []struct{ url, says, hint string }{
		{"https://" + plain.Listener.Addr().String(), "the server speaks http, not https", "name it with " + plain.URL + ","},
		{"http://" + secure.Listener.Addr().String(), "the server speaks https, not http", "name it with " + secure.URL},
	} {
		at, err := client.New(c.url, client.WithPatience(0))
		if err != nil {
			t.Fatal(err)
		}
		_, err = at.Sandbox("sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa").Info(t.Context())
		if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeDisconnected || e.Message != c.says || !strings.HasPrefix(e.Hint, c.hint) {
			t.Errorf("%s: %+v", c.url, e)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var host atomic.Value
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host.Store(r.Host)
		answer(w, 200, map[string]any{"tenant": "local"})
	})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	c, err := client.New("unix:" + socket)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := c.WhoAmI(t.Context()); err != nil || who.Tenant != "local" || host.Load() != "localhost" {
		t.Fatalf("%+v %v %v", who, err, host.Load())
	}
}

// TestWhatNoPinfoldServerSays: proxies, other programs and broken servers.
func TestWhatNoPinfoldServerSays(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"html":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"empty":    func(http.ResponseWriter, *http.Request) {},
		"not json": func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, json.RawMessage(`"x"`)) },
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
		},
		"garbage":       func(w http.ResponseWriter, _ *http.Request) { hijack(w, "\x00\x01\x02") },
		"closed":        func(w http.ResponseWriter, _ *http.Request) { hijack(w, "") },
		"error in html": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<h1>bad</h1>", http.StatusBadGateway) },
		"error empty":   func(w http.ResponseWriter, _ *http.Request) { answer(w, 500, map[string]any{"error": nil}) },
		"deep": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, json.RawMessage(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, h)
			if _, err := c.WhoAmI(t.Context()); codeOf(err) != sandbox.CodeDisconnected {
				t.Fatalf("%v (%s)", err, codeOf(err))
			}
			_, err := c.Run(t.Context(), sandbox.Spec{Code: "x"}, client.RunOptions{Stdout: io.Discard})
			if codeOf(err) != sandbox.CodeDisconnected {
				t.Fatalf("run: %v (%s)", err, codeOf(err))
			}
		})
	}
}

// hijack sends raw bytes and closes the connection.
func hijack(w http.ResponseWriter, raw string) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = buf.WriteString(raw)
	_ = buf.Flush()
	_ = conn.Close()
}

func TestAHugeAnswerIsNotRead(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"tenant":"`)
		piece := bytes.Repeat([]byte("x"), 1<<20)
		for range 1 << 10 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	if _, err := c.WhoAmI(t.Context()); codeOf(err) != sandbox.CodeTooLarge {
		t.Fatal(err)
	}
}

func TestIDsThatArePathsAskForNothing(t *testing.T) {
	var paths []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.EscapedPath())
		refuse(w, 404, sandbox.CodeNotFound)
	})
	for _, id := range []string{"", ".", ".."} {
		if _, err := c.Sandbox(id).Info(t.Context()); codeOf(err) != sandbox.CodeNotFound {
			t.Errorf("%q: %v", id, err)
		}
	}
	if len(paths) > 0 {
		t.Fatalf("asked for %q", paths)
	}
	for id, want := range map[string]string{
		"../runs": "/v1/sandboxes/..%2Fruns", "a/b?c#d%2f": "/v1/sandboxes/a%2Fb%3Fc%23d%252f", "\n": "/v1/sandboxes/%0A",
	} {
		paths = nil
		if _, err := c.Sandbox(id).Info(t.Context()); codeOf(err) != sandbox.CodeNotFound || fmt.Sprint(paths) != "["+want+"]" {
			t.Errorf("%q: %v, %q", id, err, paths)
		}
	}
}

func TestPagesAreFetchedAsTheyAreAskedFor(t *testing.T) {
	var n atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		at := r.URL.Query().Get("cursor")
		answer(w, 200, map[string]any{"items": []map[string]any{{"id": "a" + at}, {"id": "b" + at}}, "next": map[string]string{"": "1", "1": "2", "2": ""}[at]})
	})
	var ids []string
	for r, err := range c.Runs(t.Context(), client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, r.ID); len(ids) == 3 {
			break
		}
	}
	if fmt.Sprint(ids) != "[a b a1]" || n.Load() != 2 {
		t.Fatalf("%v in %d requests", ids, n.Load())
	}
	ids = nil
	for r, err := range c.Sandboxes(t.Context(), client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	if fmt.Sprint(ids) != "[a b a1 b1 a2 b2]" {
		t.Fatal(ids)
	}
}
