package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func printOne() workload {
	return workload{id: "print", code: "print(1)", args: []string{"/usr/bin/python3", "-c", "print(1)"}, want: "1"}
}

func TestGoJudgeIsAskedAndJudged(t *testing.T) {
	answer := `[{"status":"Accepted","exitStatus":0,"files":{"stdout":"1\n","stderr":""}}]`
	var asked struct {
		Cmd []struct {
			Args        []string `json:"args"`
			MemoryLimit int64    `json:"memoryLimit"`
			Files       []any    `json:"files"`
		} `json:"cmd"`
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/run" || json.NewDecoder(r.Body).Decode(&asked) != nil {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer h.Close()
	s := &session{o: Options{GoJudge: h.URL + "/"}.withDefaults()}
	c := s.goJudge()
	if err := c.run(t.Context(), printOne()); err != nil {
		t.Fatal(err)
	}
	if len(asked.Cmd) != 1 || asked.Cmd[0].Args[2] != "print(1)" || asked.Cmd[0].MemoryLimit != memoryLimit || len(asked.Cmd[0].Files) != 3 {
		t.Errorf("it was asked %+v", asked)
	}
	for name, bad := range map[string]string{
		"a failure":      `[{"status":"Memory Limit Exceeded","exitStatus":137}]`,
		"another output": `[{"status":"Accepted","exitStatus":0,"files":{"stdout":"2\n"}}]`,
		"no result":      `[]`,
		"no JSON":        `<html>`,
	} {
		answer = bad
		if err := c.run(t.Context(), printOne()); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestRefusalsAreToldFromFailures(t *testing.T) {
	status := http.StatusTooManyRequests
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer h.Close()
	var no *refusedError
	if err := ask(t.Context(), http.DefaultTransport, http.MethodGet, h.URL, nil, nil, nil); !errors.As(err, &no) {
		t.Errorf("429 is %v", err)
	}
	status = http.StatusInternalServerError
	if err := ask(t.Context(), http.DefaultTransport, http.MethodGet, h.URL, nil, nil, nil); err == nil || errors.As(err, &no) {
		t.Errorf("500 is %v", err)
	}
}

// fakeE2B is the part of an E2B service that the benchmark uses.
type fakeE2B struct {
	mu      sync.Mutex
	living  map[string]bool
	made    int
	events  func() []byte
	request string
}

func (f *fakeE2B) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, _, _ := strings.Cut(r.Host, ".")
	switch {
	case r.URL.Path == "/process.Process/Start":
		id, ok := strings.CutPrefix(name, envdPort+"-")
		user, _, _ := r.BasicAuth()
		if !ok || !f.living[id] || r.Header.Get("X-Access-Token") != "token-"+id || user != "user" || r.Header.Get("Content-Type") != "application/connect+json" {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		b, _ := io.ReadAll(r.Body)
		f.request = string(b)
		_, _ = w.Write(f.events())
	case r.Header.Get("X-API-Key") != "key":
		http.Error(w, "unauthorized", http.StatusUnauthorized)
	case r.Method == http.MethodPost && r.URL.Path == "/sandboxes":
		f.made++
		id := fmt.Sprintf("box%d", f.made)
		f.living[id] = true
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"sandboxID":"%s","templateID":"base","envdAccessToken":"token-%s","domain":"example.test"}`, id, id)
	case r.Method == http.MethodDelete:
		delete(f.living, strings.TrimPrefix(r.URL.Path, "/sandboxes/"))
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

// frames are Connect's messages, the last with the flag of the end.
func frames(messages ...string) []byte {
	var b bytes.Buffer
	for i, m := range messages {
		f := envelope([]byte(m))
		if i == len(messages)-1 {
			f[0] = connectEnd
		}
		b.Write(f)
	}
	return b.Bytes()
}

func TestE2BSandboxesAreMadeUsedAndEnded(t *testing.T) {
	f := &fakeE2B{living: map[string]bool{}}
	good := func() []byte {
		return frames(`{"event":{"start":{"pid":42}}}`, `{"event":{"data":{"stdout":"MQo="}}}`, `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, `{}`)
	}
	f.events = good
	h := httptest.NewServer(f)
	defer h.Close()
	to := func(ctx context.Context, network, _ string) (net.Conn, error) { // whatever the name, the fake is meant
		var d net.Dialer
		return d.DialContext(ctx, network, h.Listener.Addr().String())
	}
	s := &session{o: Options{E2B: "http://api.example.test", E2BKey: "key", Transport: &http.Transport{DialContext: to}}.withDefaults()}
	c := s.e2b()
	if err := c.run(t.Context(), printOne()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(f.request, `{"process":{"args":["-c","print(1)"],"cmd":"python3"}}`) {
		t.Errorf("the process was asked for with %q", f.request)
	}
	for name, events := range map[string][]byte{
		"an exit status":   frames(`{"event":{"end":{"exitCode":3,"exited":true}}}`, `{}`),
		"another output":   frames(`{"event":{"data":{"stdout":"Mgo="}}}`, `{"event":{"end":{"exited":true}}}`, `{}`),
		"an error":         frames(`{"error":{"code":"not_found","message":"no python3"}}`),
		"no end":           frames(`{"event":{"data":{"stdout":"MQo="}}}`, `{}`),
		"a broken stream":  good()[:30],
		"no message":       nil,
		"a message of 4 G": {0, 255, 255, 255, 255},
		"no JSON":          frames(`<html>`),
	} {
		f.events = func() []byte { return events }
		if err := c.run(t.Context(), printOne()); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if len(f.living) != 0 || f.made != 9 {
		t.Errorf("%d sandboxes were made, %v live on", f.made, f.living)
	}
}
