package api

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/api"
	"pinfold/sandbox"
)

// PT-07: a page in somebody's browser can choose neither Host nor Origin.
func TestHostAndOrigin(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.api.AllowedHosts = []string{"Pinfold.example.com"}
		s.api.AllowedOrigins = []string{"https://console.example.com"}
		s.api.Domain = "box.example.com"
	})
	ids := w.living("alpha")
	own := strings.TrimPrefix(w.url, "http://")
	for _, c := range []struct {
		host, origin string
		status       int
	}{
		{own, "", 200},
		{"localhost", "", 200},
		{"LOCALHOST:80", "", 200},
		{"[::1]:7463", "", 200},
		{"127.9.9.9", "", 200},
		{"pinfold.example.com", "", 200},
		{"pinfold.example.com.:443", "", 200},
		{"box.example.com", "", 200},
		{"evil.example.com", "", 403},
		{"evil.example.com:80", "", 403},
		{"127.0.0.1.evil.example.com", "", 403},
		{"localhost.evil.example.com", "", 403},
		{"93.184.216.34", "", 403},
		{"0.0.0.0", "", 403},
		{"pinfold.example.com.evil.org", "", 403},
		{"xbox.example.com", "", 403},
		{"x.box.example.com", "", 403},
		{own, "https://console.example.com", 200},
		{own, "http://evil.example.com", 403},
		{own, "null", 403},
		{own, "http://" + own, 403},
		{own, "https://console.example.com.evil.org", 403},
		{own, "http://console.example.com", 403},
		{own, "file://", 403},
	} {
		for _, path := range []string{"/v1/whoami", "/healthz", "/docs"} {
			header := map[string]string{"Host": c.host}
			if c.origin != "" {
				header["Origin"] = c.origin
			}
			a := w.do(request{key: "alpha", method: "GET", path: path, header: header})
			if a.status != c.status {
				t.Errorf("%s, host %s, origin %q: %d, want %d", path, c.host, c.origin, a.status, c.status)
			}
			if c.status == 403 && a.code(t).Code != sandbox.CodeForbidden {
				t.Errorf("%s", a.body)
			}
			if allowed := a.header.Get("Access-Control-Allow-Origin"); (allowed != "") != (c.origin != "" && c.status == 200) {
				t.Errorf("host %s, origin %q: allowed %q", c.host, c.origin, allowed)
			}
		}
	}
	// Before the key is looked at, and for WebSockets and ports as well.
	if a := w.do(request{key: "garbage", method: "GET", path: "/v1/whoami", header: map[string]string{"Host": "evil.example.com"}}); a.status != 403 {
		t.Errorf("without a key: %d", a.status)
	}
	box := "/v1/sandboxes/" + ids["id"]
	if a := w.do(request{key: "alpha", method: "GET", path: box + "/ports/80/", header: map[string]string{"Origin": "http://evil.example.com"}}); a.status != 403 {
		t.Errorf("a port: %d", a.status)
	}
	_, status, err := w.dialAs(box+"/processes/"+ids["process"]+"/terminal", "", http.Header{"Authorization": {"Bearer " + w.keys["alpha"]}, "Origin": {"http://evil.example.com"}})
	if err == nil || status != http.StatusForbidden {
		t.Errorf("a terminal: %d %v", status, err)
	}
	pre := w.do(request{method: "OPTIONS", path: "/v1/runs", header: map[string]string{"Origin": "https://console.example.com", "Access-Control-Request-Method": "POST"}})
	if pre.status != 204 || !strings.Contains(pre.header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("%+v", pre)
	}
}

// The unix socket's peers were let in by its file mode.
func TestLocalPeersNeedNoKey(t *testing.T) {
	w := newWorld(t, nil)
	h, err := api.New(api.Options{Engine: w.Engine, Access: w.access})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return api.WithLocalPeer(ctx) }
	server.Start()
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	get := func(header http.Header) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://whatever/v1/whoami", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b := make([]byte, 1000)
		n, _ := resp.Body.Read(b)
		return resp.StatusCode, string(b[:n])
	}
	if status, body := get(http.Header{}); status != 200 || !strings.Contains(body, `"tenant":"local"`) || !strings.Contains(body, "admin") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := get(http.Header{"Origin": {"http://evil.example.com"}}); status != 403 {
		t.Errorf("a foreign origin: %d", status)
	}
	if a := w.do(request{method: "GET", path: "/v1/whoami"}); a.status != 401 {
		t.Errorf("over TCP: %d", a.status)
	}
}
