package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pinfold/internal/api"
	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

func (w *world) link(key, box string, body map[string]any) api.Link {
	w.t.Helper()
	var l api.Link
	w.must(201, request{key: key, method: "POST", path: box + "/links", body: body}).json(w.t, &l)
	return l
}

// An address for a browser works without a key, keeps relative links below it,
// and lets nothing through that a port by path would not.
func TestLinksServeAPortWithoutAKey(t *testing.T) {
	w, path, _ := portWorld(t)
	box := strings.TrimSuffix(path, "/ports/8000")
	l := w.link("alpha", box, map[string]any{"port": 8000, "ttl_ms": 60_000})
	if l.URL != w.url+l.Path || time.Until(l.ExpiresAt) > time.Minute || strings.Contains(l.Path, strings.TrimPrefix(box, "/v1/sandboxes/sbx_")) {
		t.Errorf("%+v", l)
	}
	prefix := strings.TrimSuffix(l.Path, "/")
	if a := w.must(308, request{method: "GET", path: prefix + "?q"}); a.header.Get("Location") != strings.TrimPrefix(prefix, "/p/")+"/?q" {
		t.Errorf("%v", a.header)
	}
	a := w.must(200, request{method: "POST", path: l.Path + "a/../b?q=1", header: map[string]string{
		"Cookie": "ours=1", "Authorization": "Bearer " + w.keys["alpha"], "X-API-Key": w.keys["alpha"], "Origin": "null",
	}})
	if want := `POST /a/../b?q=1 host=localhost:8000 auth="" key="" cookie="" prefix="` + prefix + `"`; a.body != want {
		t.Errorf("%s\n%s", a.body, want)
	}
	if a.header.Get("Access-Control-Allow-Origin") != "null" || a.header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%v", a.header)
	}
	hostile := w.must(200, request{method: "GET", path: l.Path + "hostile"})
	for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Clear-Site-Data", "Strict-Transport-Security", "Service-Worker-Allowed", "Refresh", "Link"} {
		if hostile.header.Get(name) != "" {
			t.Errorf("%s: %s", name, hostile.header.Get(name))
		}
	}
	if csp := hostile.header.Values("Content-Security-Policy"); len(csp) != 2 || csp[1] != "sandbox allow-scripts allow-forms" || hostile.header.Get("X-Content-Type-Options") != "nosniff" || hostile.header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%v", hostile.header)
	}
	for to, want := range map[string]string{"/next": prefix + "/next", "next": prefix + "/next", "https://example.org/": "", "/../../v1/whoami": prefix + "/v1/whoami"} {
		if a := w.must(302, request{method: "GET", path: l.Path + "redirect?to=" + to}); a.header.Get("Location") != want {
			t.Errorf("%s became %s", to, a.header.Get("Location"))
		}
	}
	pre := w.do(request{method: "OPTIONS", path: l.Path, header: map[string]string{"Origin": "null", "Access-Control-Request-Method": "PUT"}})
	if pre.status != 204 || pre.header.Get("Access-Control-Allow-Origin") != "null" {
		t.Errorf("%d %v", pre.status, pre.header)
	}
	conn, _, err := w.dialAs(l.Path+"ws", "", http.Header{"Origin": {"null"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(soon(t), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := conn.Read(soon(t)); err != nil || string(b) != "echo hello" {
		t.Errorf("%q %v", b, err)
	}
}

// A link opens one port of one sandbox, for its time, as long as the key that
// made it is good, and nothing else.
func TestLinksOpenNothingElse(t *testing.T) {
	w, path, host := portWorld(t)
	box := strings.TrimSuffix(path, "/ports/8000")
	l := w.link("alpha", box, map[string]any{"port": 8000})
	token := strings.Trim(strings.TrimPrefix(l.Path, "/p/"), "/")
	flipped := []byte(token)
	flipped[len(flipped)/2] ^= 1
	for _, bad := range []string{"", "x", string(flipped), token[:len(token)-2], token + "AA", strings.Repeat("A", 5000), "%2e%2e", token + "%00"} {
		if a := w.do(request{method: "GET", path: "/p/" + bad + "/"}); a.status != 404 || a.code(t).Code != sandbox.CodeNotFound {
			t.Errorf("%.40q: %d %s", bad, a.status, a.body)
		}
	}
	for _, r := range []request{
		{method: "GET", path: l.Path, header: map[string]string{"Origin": "https://evil.example"}},
		{method: "GET", path: "/v1/whoami", header: map[string]string{"Origin": "null"}},
		// Under the name of a port every path is the guest's.
		{key: "alpha", method: "GET", path: "/p/a/", header: map[string]string{"Origin": "null", "Host": host}},
		{key: "alpha", method: "GET", path: l.Path, header: map[string]string{"Origin": "null", "Host": host}},
	} {
		if a := w.do(r); a.status != 403 {
			t.Errorf("%s from %s: %d", r.path, r.header["Origin"], a.status)
		}
	}
	for path, header := range map[string]map[string]string{l.Path: {"Origin": "null"}, "/p/a/": {"Origin": "http://" + host, "Host": host}} {
		w.must(200, request{key: "alpha", method: "GET", path: path, header: header})
	}
	if a := w.do(request{method: "GET", path: "/v1/whoami", header: map[string]string{"Authorization": "Bearer " + token}}); a.status != 401 {
		t.Errorf("a link as a key: %d", a.status)
	}
	for name, body := range map[string]map[string]any{
		"port": {"port": 0}, "port ": {"port": 65536}, "ttl_ms": {"port": 80, "ttl_ms": 1}, "ttl_ms ": {"port": 80, "ttl_ms": 8 * 24 * 3600 * 1000}, "": {"port": 80, "host": "x"},
	} {
		if a := w.do(request{key: "alpha", method: "POST", path: box + "/links", body: body}); a.status != 400 || name != "" && a.code(t).Field != strings.TrimSpace(name) {
			t.Errorf("%v: %d %s", body, a.status, a.body)
		}
	}
	for key, want := range map[string]int{"read": 403, "run": 403, "beta": 404} {
		if a := w.do(request{key: key, method: "POST", path: box + "/links", body: map[string]any{"port": 80}}); a.status != want {
			t.Errorf("made by %s: %d", key, a.status)
		}
	}
	// Its time.
	short := w.link("alpha", box, map[string]any{"port": 8000, "ttl_ms": 1000})
	conn, _, err := w.dialAs(short.Path+"ws", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Read(soon(t)); err == nil || errors.Is(err, context.DeadlineExceeded) { // which ends what goes on, too
		t.Errorf("a connection outlives its link: %v", err)
	}
	if a := w.do(request{method: "GET", path: short.Path}); a.status != 401 || !strings.Contains(a.body, "time of this address is over") {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
	// Its key.
	k, secret, err := w.access.Create(t.Context(), "alpha", "short", []string{"sandbox"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.keys["short"] = secret
	of := w.link("short", box, map[string]any{"port": 8000})
	w.must(200, request{method: "GET", path: of.Path})
	if _, err := w.access.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if a := w.do(request{method: "GET", path: of.Path}); a.status != 401 {
		t.Errorf("with its key revoked: %d %s", a.status, a.body)
	}
	// Its sandbox.
	w.must(200, request{key: "alpha", method: "DELETE", path: box})
	if a := w.do(request{method: "GET", path: l.Path}); a.status != 410 {
		t.Errorf("with its sandbox gone: %d %s", a.status, a.body)
	}
	// Another server, as after a restart.
	other, _, _ := portWorld(t)
	if a := other.do(request{method: "GET", path: l.Path}); a.status != 404 {
		t.Errorf("at another server: %d", a.status)
	}
	if strings.Contains(w.log.String(), token) {
		t.Error("the log has the address")
	}
}

// talkers are servers inside that speak no HTTP.
func talkers() map[int]func(net.Conn) {
	return map[int]func(net.Conn){
		9000: func(c net.Conn) { // answers when it has had everything
			all, _ := io.ReadAll(c)
			_, _ = c.Write(append([]byte("got: "), all...))
			_ = c.Close()
		},
		9001: func(c net.Conn) { // line by line
			for lines := bufio.NewScanner(c); lines.Scan(); {
				_, _ = io.WriteString(c, "echo "+lines.Text()+"\n")
			}
			_ = c.Close()
		},
	}
}

// A tunnel carries whatever is spoken, each direction to its own end; it ends
// with the sandbox and with the key.
func TestTunnels(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = always(fake.Script{Ports: talkers()}) })
	box := w.create("alpha")
	var err error
	ws := w.dial("alpha", box+"/tunnel/9000")
	for _, part := range []string{"one ", "two", ""} {
		if err := ws.Write(soon(t), websocket.MessageBinary, []byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	var got strings.Builder
	for {
		kind, b, err := ws.Read(soon(t))
		if err != nil || kind != websocket.MessageBinary {
			t.Fatalf("%v %v after %q", kind, err, got.String())
		}
		if len(b) == 0 {
			break
		}
		got.Write(b)
	}
	if got.String() != "got: one two" {
		t.Errorf("%q", got.String())
	}
	if _, _, err := ws.Read(soon(t)); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("at the end: %v", err)
	}
	if a := w.do(request{key: "alpha", method: "GET", path: box + "/tunnel/9000"}); a.status != 426 {
		t.Errorf("without an upgrade: %d", a.status)
	}
	upgrade := map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
	for port, want := range map[string]int{"0": 400, "65536": 400, "x": 400, "08": 400, "9999": 502} {
		if a := w.do(request{key: "alpha", method: "GET", path: box + "/tunnel/" + port, header: upgrade}); a.status != want {
			t.Errorf("port %s: %d %s", port, a.status, a.body)
		}
	}
	bad := w.dial("alpha", box+"/tunnel/9001")
	if err := bad.Write(soon(t), websocket.MessageText, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := bad.Read(soon(t)); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("text: %v", err)
	}
	open := w.dial("alpha", box+"/tunnel/9001")
	if err := open.Write(soon(t), websocket.MessageBinary, []byte("a\n")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := open.Read(soon(t)); err != nil || string(b) != "echo a\n" {
		t.Fatalf("%q %v", b, err)
	}
	w.must(200, request{key: "alpha", method: "DELETE", path: box})
	for err = nil; err == nil; { // the end of what came, perhaps, and that of the connection
		_, _, err = open.Read(soon(t))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the sandbox has ended: %v", err)
	}
	w.finished("/tunnel/{port}")
}

func TestTunnelsEndWithTheirKey(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = always(fake.Script{Ports: talkers()}) })
	k, secret, err := w.access.Create(t.Context(), "alpha", "short", []string{"sandbox"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.keys["short"] = secret
	ws := w.dial("short", w.create("alpha")+"/tunnel/9001")
	if _, err := w.access.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ws.Read(soon(t)); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("%v", err)
	}
}
