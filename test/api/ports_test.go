package api

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// inside is a server in a sandbox that does what it can to harm who shows it.
func inside(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ws":
		conn, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		kind, b, err := conn.Read(r.Context())
		if err == nil {
			_ = conn.Write(r.Context(), kind, append([]byte("echo "), b...))
		}
		_ = conn.Close(websocket.StatusNormalClosure, "")
	case "/hostile":
		h := rw.Header()
		h.Set("Link", "</x>; rel=preload")
		h.Set("X-Request-Id", "forged")
		rw.WriteHeader(http.StatusEarlyHints)
		for name, value := range map[string]string{
			"Set-Cookie": "session=stolen; Path=/", "Access-Control-Allow-Origin": "*", "Clear-Site-Data": "*", "Strict-Transport-Security": "max-age=9",
			"NEL": "{}", "Report-To": "{}", "Reporting-Endpoints": `a="https://evil.example"`, "WWW-Authenticate": "Basic", "Refresh": "0;url=/v1/whoami", "Set-Cookie2": "a=b",
			"Public-Key-Pins": "x", "Accept-CH": "DPR", "SourceMap": "/x", "X-SourceMap": "/x", "X-Accel-Redirect": "/secret", "X-Sendfile": "/etc/passwd", "X-Content-Type-Options": "none",
			"X-Theirs": "kept", "ETag": `"kept"`, "Trailer": "Set-Cookie",
			"Service-Worker-Allowed": "/", "Alt-Svc": "clear", "Content-Security-Policy": "default-src *", "Content-Type": "text/html",
		} {
			h.Set(name, value)
		}
		h.Add("Set-Cookie", "wide=1; Domain=example.com")
		h.Add("Set-Cookie", "wide=2;Path=/;\tdomain\t= example.com")
		h.Set("X-Pinfold-Location", "forged")
		_, _ = io.WriteString(rw, "<script>alert(1)</script>")
	case "/redirect":
		rw.Header().Set("Location", r.URL.Query().Get("to"))
		rw.WriteHeader(http.StatusFound)
	case "/large":
		rw.Header().Set("X-Large", strings.Repeat("x", 1<<20))
		rw.WriteHeader(http.StatusOK)
	default:
		_, _ = fmt.Fprintf(rw, "%s %s host=%s auth=%q key=%q cookie=%q prefix=%q", r.Method, r.URL.RequestURI(), r.Host,
			r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"), r.Header.Get("Cookie"), r.Header.Get("X-Forwarded-Prefix"))
	}
}

// statusLine answers with a page under that status.
func statusLine(status string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 "+status+"\r\nContent-Type: text/html\r\nTrailer: X-A\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n<script>\r\n0\r\n\r\n")
		_ = c.Close()
	}
}

func portsInside() map[int]func(net.Conn) {
	return map[int]func(net.Conn){
		8000: fake.HTTP(http.HandlerFunc(inside)),
		8001: func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-nothing of yours\r\n"); _ = c.Close() },
		8002: func(c net.Conn) { _ = c.Close() },
		8003: func(c net.Conn) { // takes the connection over and leaves
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_ = c.Close()
		},
		8099: statusLine("099 OK"),
		8100: statusLine("000"),
		8600: statusLine("600 OK"),
	}
}

func portWorld(t *testing.T) (w *world, path, host string) {
	t.Helper()
	w = newWorld(t, func(s *settings) {
		s.api.Domain = "box.example.com"
		s.script = always(fake.Script{Ports: portsInside()})
	})
	box := w.create("alpha")
	return w, box + "/ports/8000", "8000-" + strings.TrimPrefix(box, "/v1/sandboxes/sbx_") + ".box.example.com"
}

func TestPortsKeepOurSecretsOutside(t *testing.T) {
	w, path, host := portWorld(t)
	key := w.keys["alpha"]
	for _, c := range []struct {
		header map[string]string
		path   string
		want   string
	}{
		{map[string]string{"Authorization": "Bearer " + key, "Cookie": "ours=1"}, path + "/a/../b?q=1", `GET /a/../b?q=1 host=localhost:8000 auth="" key="" cookie="" prefix="` + path + `"`},
		{map[string]string{"X-API-Key": key, "Authorization": "Bearer theirs"}, path + "/", `GET / host=localhost:8000 auth="Bearer theirs" key="" cookie="" prefix="` + path + `"`},
		{map[string]string{"X-API-Key": key, "Authorization": "Basic dGhleTp0aGVpcnM="}, path + "/", `GET / host=localhost:8000 auth="Basic dGhleTp0aGVpcnM=" key="" cookie="" prefix="` + path + `"`},
		{map[string]string{"X-API-Key": key, "Authorization": "Basic " + key}, path + "/", `GET / host=localhost:8000 auth="" key="" cookie="" prefix="` + path + `"`},
		{map[string]string{"X-API-Key": key, "Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+key))}, path + "/", `GET / host=localhost:8000 auth="" key="" cookie="" prefix="` + path + `"`},
		{map[string]string{"X-API-Key": key}, path + "/", `GET / host=localhost:8000 auth="" key="" cookie="" prefix="` + path + `"`},
		{map[string]string{"Authorization": "Bearer " + key, "Host": host, "Cookie": "theirs=1"}, "/v1/runs", `GET /v1/runs host=localhost:8000 auth="" key="" cookie="theirs=1" prefix=""`},
	} {
		if a := w.must(200, request{method: "GET", path: c.path, header: c.header}); a.body != c.want {
			t.Errorf("%s\n%s", a.body, c.want)
		}
	}
	for _, c := range []request{{method: "GET", path: "/"}, {method: "GET", path: "/?pinfold_key=" + key}, {method: "GET", path: "/", key: "read"}, {method: "GET", path: "/", key: "beta"}} {
		c.header = map[string]string{"Host": host}
		want := map[string]int{"": 401, "read": 403, "beta": 404}[c.key]
		if a := w.do(c); a.status != want {
			t.Errorf("%s with the key %q: %d %s", c.path, c.key, a.status, a.body)
		}
	}
}

// What comes by path comes from our own origin, and must not act as us.
func TestAnswersFromInsideAreMadeHarmless(t *testing.T) {
	w, path, host := portWorld(t)
	a := w.must(200, request{key: "alpha", method: "GET", path: path + "/hostile"})
	for _, name := range []string{
		"Set-Cookie", "Access-Control-Allow-Origin", "Clear-Site-Data", "Strict-Transport-Security", "Service-Worker-Allowed", "Alt-Svc",
		"NEL", "Report-To", "Reporting-Endpoints", "WWW-Authenticate", "Refresh", "Set-Cookie2", "Public-Key-Pins", "Accept-CH", "SourceMap", "X-SourceMap", "X-Accel-Redirect", "X-Sendfile", "Link", "Trailer", "X-Pinfold-Location",
	} {
		if a.header.Get(name) != "" {
			t.Errorf("%s: %s", name, a.header.Get(name))
		}
	}
	if csp := a.header.Values("Content-Security-Policy"); len(csp) != 2 || csp[1] != "sandbox allow-scripts allow-forms" {
		t.Errorf("%q", csp)
	}
	if sniff := a.header.Values("X-Content-Type-Options"); len(sniff) != 1 || sniff[0] != "nosniff" {
		t.Errorf("%q", sniff)
	}
	if a.header.Get("X-Theirs") != "kept" || a.header.Get("ETag") != `"kept"` {
		t.Errorf("too much was left out: %v", a.header)
	}
	if id := a.header.Values("X-Request-Id"); len(id) != 1 || id[0] == "forged" {
		t.Errorf("%q", id)
	}
	own := w.must(200, request{key: "alpha", method: "GET", path: "/hostile", header: map[string]string{"Host": host}})
	if c := own.header.Values("Set-Cookie"); len(c) != 1 || !strings.HasPrefix(c[0], "session=") {
		t.Errorf("a host of its own: cookies %q", c)
	}
	if own.header.Get("Clear-Site-Data") != "" || len(own.header.Values("Content-Security-Policy")) != 1 {
		t.Errorf("%v", own.header)
	}
	for to, want := range map[string]string{
		"/next": path + "/next", "http://localhost:8000/x?y": path + "/x?y", "http://127.0.0.1:8000": path + "/", "next": path + "/next",
		"https://example.org/": "", "//example.org/": "", "http://203.0.113.7/": "", "http://localhost:8000@example.org/": "", "http://localhost:80001/": "", path + "/next": path + "/next",
		"/../../../../../v1/whoami": path + "/v1/whoami", "/%252e%252e/%252e%252e/v1/whoami": path + "/v1/whoami", "http://localhost:8000//evil.com": path + "/evil.com",
		w.url + "/v1/whoami": "", w.url + path + "/../../../whoami": "", "http:/v1/whoami": "", "http://localhost/v1/whoami": "", "http://2130706433/v1/whoami": "", "javascript:alert(1)": "",
	} {
		a := w.must(302, request{key: "alpha", method: "GET", path: path + "/redirect?to=" + strings.ReplaceAll(to, "?", "%3F")})
		if got := a.header.Get("Location"); got != want {
			t.Errorf("%s became %s", to, got)
		}
		if told := a.header.Get("X-Pinfold-Location"); (told == "") != (want != "") {
			t.Errorf("%s: the caller is told %q", to, told)
		}
	}
	for _, port := range []string{"/ports/8001/", "/ports/8002/", "/ports/9999/", "/ports/8099/", "/ports/8100/", "/ports/8600/"} {
		a := w.do(request{key: "alpha", method: "GET", path: strings.TrimSuffix(path, "/ports/8000") + port})
		if a.status != 502 || a.code(t).Code != sandbox.CodePortClosed {
			t.Errorf("%s: %d %s", port, a.status, a.body)
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %v", port, a.header)
		}
	}
	if a := w.do(request{key: "alpha", method: "GET", path: path + "/large"}); a.status != 502 {
		t.Errorf("a header of 1 MiB: %d", a.status)
	}
}

// The address of a port without a slash leads to the one with it, where the
// relative links of a page are right. Strangers learn nothing from it.
func TestPortsLeadToTheirRoot(t *testing.T) {
	w, path, _ := portWorld(t)
	for _, method := range []string{"GET", "HEAD", "POST"} {
		a := w.must(308, request{key: "alpha", method: method, path: path + "?q=%zz&b", body: []byte("x")})
		if to := a.header.Get("Location"); to != "8000/?q=%zz&b" {
			t.Errorf("%s leads to %q", method, to)
		}
	}
	if a := w.must(200, request{key: "alpha", method: "GET", path: path + "/?q"}); !strings.HasPrefix(a.body, "GET /?q ") {
		t.Errorf("%s", a.body)
	}
	for key, want := range map[string]int{"": 401, "read": 403, "beta": 404} {
		if a := w.do(request{key: key, method: "GET", path: path}); a.status != want || a.header.Get("Location") != "" {
			t.Errorf("with the key %q: %d %v", key, a.status, a.header)
		}
	}
}

func TestPortsCarryWebSockets(t *testing.T) {
	w, path, host := portWorld(t)
	for name, at := range map[string][2]string{"by path": {path + "/ws", ""}, "by name": {"/ws", host}} {
		conn, _, err := w.dialAs(at[0], at[1], http.Header{"Authorization": {"Bearer " + w.keys["alpha"]}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, b, err := conn.Read(ctx); err != nil || string(b) != "echo hello" {
			t.Errorf("%s: %q %v", name, b, err)
		}
		cancel()
		_ = conn.CloseNow()
	}
}

// A connection that was taken over ends with the sandbox, and with the key.
func TestWebSocketsEndWithTheSandbox(t *testing.T) {
	w, path, _ := portWorld(t)
	conn, _, err := w.dialAs(path+"/ws", "", http.Header{"Authorization": {"Bearer " + w.keys["alpha"]}})
	if err != nil {
		t.Fatal(err)
	}
	w.must(200, request{key: "alpha", method: "DELETE", path: strings.TrimSuffix(path, "/ports/8000")})
	if _, _, err := conn.Read(soon(t)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the sandbox has ended: %v", err)
	}
}

// A client that says nothing on a connection whose other end has left is not
// held for ever.
func TestConnectionsThatNobodyServesEndWithTheSandbox(t *testing.T) {
	w, path, _ := portWorld(t)
	box := strings.TrimSuffix(path, "/ports/8000")
	conn := w.send("GET " + box + "/ports/8003/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\nAuthorization: Bearer " + w.keys["alpha"] + "\r\n\r\n")
	b := make([]byte, 12)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "HTTP/1.1 101" {
		t.Fatalf("%q %v", b, err)
	}
	w.must(200, request{key: "alpha", method: "DELETE", path: box})
	w.finished("{port}/{path}")
}

// soon is a context that ends before a test would hang.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
