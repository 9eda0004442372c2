package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pinfold/sandbox"
)

func TestChoose(t *testing.T) {
	both := []string{typeJSON, typeEvents}
	for accept, want := range map[string]string{
		"": typeJSON, "*/*": typeJSON, "application/*": typeJSON, typeJSON: typeJSON, typeEvents: typeEvents, "text/*": typeEvents,
		"application/json, text/event-stream": typeEvents, "TEXT/EVENT-STREAM;q=0.5": typeEvents, "text/event-stream;q=0, */*": typeJSON,
		"image/png": "", "text/html, */*;q=0.1": typeJSON, ";;,,": "", "*": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		if got, err := choose(r, both); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", accept, got, err, want)
		}
	}
}

// FuzzSplitter holds the cutting of output to: nothing is lost, nothing is
// added, offsets are right, and text is text.
func FuzzSplitter(f *testing.F) {
	f.Add("ünïcode \xf0\x9f\x98\x80 \xff\xfe", 3)
	f.Add("\xe2\x82", 1)
	f.Add("\xf0\x9f\x98", 2)
	f.Fuzz(func(t *testing.T, s string, step int) {
		step = max(1, min(step, 100))
		cut := splitter{stream: "stdout"}
		var out strings.Builder
		take := func(e OutputEvent, ok bool) {
			if !ok {
				return
			}
			raw, err := base64.StdEncoding.DecodeString(e.Base64)
			if err != nil || e.Offset != int64(out.Len()) || !utf8.ValidString(e.Text) || (e.Text != "" && e.Base64 != "") {
				t.Fatalf("%+v after %d bytes: %v", e, out.Len(), err)
			}
			out.WriteString(e.Text + string(raw))
		}
		for rest := s; rest != ""; {
			n := min(step, len(rest))
			take(cut.take([]byte(rest[:n])))
			rest = rest[n:]
			if len(cut.tail) > utf8.UTFMax-1 {
				t.Fatalf("%d bytes are held back", len(cut.tail))
			}
		}
		take(cut.rest())
		if out.String() != s {
			t.Fatalf("%q became %q", s, out.String())
		}
		if utf8.ValidString(s) && strings.Contains(out.String(), "\uFFFD") != strings.Contains(s, "\uFFFD") {
			t.Fatal("a character broke")
		}
	})
}

// Text that is whole stays text, wherever it is cut.
func TestSplitterKeepsCharactersWhole(t *testing.T) {
	text := "aé€😀z"
	for at := range len(text) {
		cut := splitter{}
		first, _ := cut.take([]byte(text[:at]))
		second, _ := cut.take([]byte(text[at:]))
		if first.Base64 != "" || second.Base64 != "" || first.Text+second.Text != text {
			t.Errorf("cut at %d: %+v %+v", at, first, second)
		}
	}
}

type tired struct{ error }

func (tired) RetryAfter() time.Duration { return 1500 * time.Millisecond }

func TestRetryAfter(t *testing.T) {
	err := &sandbox.Error{Code: sandbox.CodeBusy, Message: "full", Err: tired{errors.New("full")}}
	if got := retryAfter(err); got != 2 {
		t.Errorf("%d seconds", got)
	}
	if got := retryAfter(errors.New("x")); got != 1 {
		t.Errorf("%d seconds", got)
	}
}

// One tenant's large bodies are refused before they keep out those of others.
func TestOneTenantCannotTakeTheBodiesOfAll(t *testing.T) {
	const large = 64 << 20
	var b budget
	hold := func(tenant string, want bool) *bodyShare {
		t.Helper()
		s := b.share(tenant)
		if s.growTo(large) != want {
			t.Errorf("a body of %s's: want %v with %d held", tenant, want, b.used)
		}
		return s
	}
	first, second := hold("a", true), hold("a", true)
	for range 6 {
		hold("a", false)
	}
	if !b.share("a").growTo(freeBody) {
		t.Error("a small body was refused")
	}
	for _, other := range []string{"b", "c", "d"} {
		hold(other, true)
		hold(other, true)
	}
	if b.used != bodyBudget {
		t.Fatalf("%d are held", b.used)
	}
	late := hold("late", true) // it holds nothing else
	hold("late", false)
	if !late.growTo(large + 1) {
		t.Error("the one body of a tenant was refused half way")
	}
	first.giveBack()
	first.giveBack()
	second.giveBack()
	hold("a", true)
	late.giveBack()
	if want := int64(7 * large); b.used != want || b.tenants["late"] != nil {
		t.Errorf("%d are held, want %d: %v", b.used, want, b.tenants)
	}
}

func TestPortHosts(t *testing.T) {
	id := strings.Repeat("a2", 13)
	s := &server{o: withDefaults(Options{Domain: "Box.Example.com."}), portLabel: portLabel()}
	for name, port := range map[string]int{
		"8000-" + id + ".box.example.com": 8000, "1-" + id + ".box.example.com": 1, "65535-" + id + ".box.example.com": 65535,
		"0-" + id + ".box.example.com": 0, "65536-" + id + ".box.example.com": 0, "08-" + id + ".box.example.com": 0, id + ".box.example.com": 0,
		"8000-" + id + ".example.com": 0, "8000-" + id[1:] + ".box.example.com": 0, "8000-" + id + ".box.example.com.evil.org": 0, "x.8000-" + id + ".box.example.com": 0,
	} {
		got, ok := s.portHost(name)
		if ok != (port != 0) || (ok && (got.port != port || got.sandbox != "sbx_"+id)) {
			t.Errorf("%s: %+v %v", name, got, ok)
		}
	}
	if _, ok := (&server{portLabel: portLabel()}).portHost("8000-" + id + "."); ok {
		t.Error("a server without a domain has port hosts")
	}
}

func FuzzQuery(f *testing.F) {
	table := []param{{name: "path", kind: kindText, required: true}, {name: "n", kind: kindInt, min: -1, max: 9}, {name: "b", kind: kindBool}, {name: "d", kind: kindDate}, {name: "m", kind: kindMode}}
	f.Add("path=a&n=3&b=true&d=2026-01-01&m=644")
	f.Add("path=%ff&n=-2")
	f.Fuzz(func(t *testing.T, raw string) {
		v, err := parseQuery(raw, table)
		if err != nil {
			if e := sandbox.AsError(err); e.Code != sandbox.CodeRequestInvalid || sandbox.SafeText(e.Error(), 10_000) != e.Error() {
				t.Fatalf("%+v", e)
			}
			return
		}
		if n := v.int("n"); n < -1 || n > 9 || v.mode("m") > 0o777 || len(v.text("path")) > maxParamBytes {
			t.Fatalf("%v", v)
		}
	})
}

// That nothing answers is not the fault of the caller, who still waits.
func TestPortsThatNeverAnswerSaySo(t *testing.T) {
	s := &server{o: withDefaults(Options{ClientTimeout: 10 * time.Millisecond})}
	_, err := s.dialPort(t.Context(), 8000, func(ctx context.Context, _ int) (net.Conn, error) {
		<-ctx.Done()
		return nil, &sandbox.Error{Code: sandbox.CodeDisconnected, Message: "the caller went away", Err: ctx.Err()}
	})
	if e := sandbox.AsError(err); e.Code != sandbox.CodePortClosed || !strings.Contains(e.Message, "nothing answered on port 8000") || e.Hint == "" {
		t.Errorf("%+v", e)
	}
}

func TestCleanPath(t *testing.T) {
	for in, want := range map[string]string{
		"": "/", "/": "/", "/a/./b": "/a/b", "/a/../../b": "/b", "/%2e%2E/%2e./x": "/x", "//a//b/": "/a//b/", "/a/..": "/", "/a/b/.": "/a/b/", "/..//..//x": "/x", "/a%2fb": "/a%2fb",
	} {
		if got := cleanPath(in); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

// FuzzLocation holds redirections of servers inside to their own prefix,
// however a client resolves them.
func FuzzLocation(f *testing.F) {
	for _, seed := range []string{"/next", "/../../../../../v1/whoami", "/%2e%2e/%2e%2e/v1/whoami", "http://localhost:8000//evil.com", "//localhost/v1/whoami", "http:/v1/whoami", `\\..\v1`, "http://LOCALHOST./v1", "?a#b", "http://pinfold.example.com/v1/sandboxes/x/ports/8000/../../.."} {
		f.Add(seed)
	}
	const prefix = "/v1/sandboxes/x/ports/8000"
	outside := httptest.NewRequest(http.MethodGet, "http://pinfold.example.com"+prefix+"/a/b", nil)
	inner := httptest.NewRequest(http.MethodGet, "http://localhost:8000/a/b", nil)
	p := &portProxy{server: newServer(Options{AllowedHosts: []string{"other.example.com"}}), request: outside, host: outside.Host, prefix: prefix, port: 8000}
	f.Fuzz(func(t *testing.T, to string) {
		got := p.location(inner, to)
		if got == "" {
			return
		}
		u, err := url.Parse(got)
		if err != nil {
			t.Fatalf("%q became %q: %v", to, got, err)
		}
		u = outside.URL.ResolveReference(u)
		switch strings.ToLower(u.Hostname()) {
		case "localhost", "127.0.0.1", "::1", "other.example.com", "":
			t.Fatalf("%q became %q", to, got)
		case "pinfold.example.com":
			if at := cleanPath(u.EscapedPath()); !strings.HasPrefix(at, prefix+"/") && at != prefix {
				t.Fatalf("%q became %q, which is %s", to, got, at)
			}
		}
	})
}

// parts counts the writes of an answer and looks at their size.
type parts struct {
	*httptest.ResponseRecorder
	largest int
}

func (p *parts) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.ResponseRecorder.Write(b)
}

// Large results go out in parts, behind a header that says how long they are.
func TestLargeAnswersGoOutInParts(t *testing.T) {
	w := &parts{ResponseRecorder: httptest.NewRecorder()}
	writeJSON(w, http.StatusCreated, map[string]string{"stdout": strings.Repeat("x\n", 4<<20)})
	body := w.Body.Bytes()
	if w.Code != http.StatusCreated || w.largest > answerPart || w.Header().Get("Content-Length") != strconv.Itoa(len(body)) || !json.Valid(body) {
		t.Errorf("%d, %d bytes at once, %v, %d bytes", w.Code, w.largest, w.Header(), len(body))
	}
	broken := httptest.NewRecorder()
	writeJSON(broken, http.StatusOK, map[string]any{"x": func() {}})
	if broken.Code != http.StatusInternalServerError || !strings.Contains(broken.Body.String(), `{"error":`) {
		t.Errorf("%d %s", broken.Code, broken.Body)
	}
}

// That a client has gone is no failure of the server's.
func TestClientsThatAreGoneAreNotErrors(t *testing.T) {
	for gone, want := range map[bool]string{true: "", false: "request failed"} {
		var log strings.Builder
		s := newServer(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		if gone {
			cancel()
		}
		e := s.shown(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx), errors.New("broken pipe to /srv"))
		cancel()
		if e.Code != sandbox.CodeInternal || strings.Contains(e.Message, "/srv") || (want == "") != (log.Len() == 0) || !strings.Contains(log.String(), want) {
			t.Errorf("gone %v: %v, log %s", gone, e, log.String())
		}
	}
}

// What asks for memory when its answer is over, such as a listing that still comes
// in from a guest, takes none that nobody would give back.
func TestNothingIsTakenForAnswersThatAreOver(t *testing.T) {
	var b budget
	s := b.share("a")
	for range 3 {
		if !s.add(freeBody / 2) {
			t.Error("refused")
		}
	}
	if want := int64(freeBody / 2 * 3); b.used != want {
		t.Errorf("%d are held, want %d", b.used, want)
	}
	freed := b.freed()
	s.giveBack()
	<-freed
	if s.add(1<<20) || b.used != 0 || len(b.tenants) != 0 {
		t.Errorf("%d are held: %v", b.used, b.tenants)
	}
}
