package registry

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pinfold/internal/template"
	"pinfold/sandbox"
)

// An image is found by its tag and by each digest that it has, and is the same; what is
// here already is not fetched again.
func TestPull(t *testing.T) {
	s, store := serve(t), openStore(t)
	p := s.push("1", layerOf(t, "a", 100), layerOf(t, "b", 1<<20))
	first, err := s.pull(store, "app:1", quick)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(template.Config{Env: []string{"A=b"}, User: "app", WorkingDir: "/srv"}, first.Image.Config); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(template.Origin{Kind: "registry", Reference: s.host + "/app:1", Digest: p.manifest.Digest}, first.From); diff != "" {
		t.Error(diff)
	}
	s.takeAsked("")
	for _, ref := range []string{"app:1", "app@" + p.manifest.Digest, "app@" + p.index.Digest} {
		got, err := s.pull(store, ref, quick)
		if err != nil || got.Image.ID != first.Image.ID {
			t.Errorf("%s: %v, %v", ref, got.Image.ID, err)
		}
		if diff := cmp.Diff([]string{"blobs/" + p.config.Digest}, s.takeAsked("blobs/")); diff != "" {
			t.Errorf("%s: %s", ref, diff)
		}
	}
}

// What the registry lies about is refused, and nothing of it is kept.
func TestLyingRegistry(t *testing.T) {
	s := serve(t)
	p := s.push("1", layerOf(t, "a", 300<<10))
	layer := "/blobs/" + digestOf(p.layers[0])
	changed := func(b []byte) []byte { b = bytes.Clone(b); b[600] ^= 1; return b }
	send := func(suffix string, b []byte) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, suffix) {
				return false
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			_, _ = w.Write(b)
			return true
		}
	}
	endless := func(suffix string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, suffix) {
				return false
			}
			for zeros := make([]byte, 64<<10); ; {
				if _, err := w.Write(zeros); err != nil {
					return true
				}
			}
		}
	}
	unsaid := func(b []byte) func(http.ResponseWriter, *http.Request) bool { // without a length
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, layer) {
				return false
			}
			w.(http.Flusher).Flush() //nolint:forcetypeassert // it is one
			_, _ = w.Write(b)
			return true
		}
	}
	for name, c := range map[string]struct {
		meddle func(http.ResponseWriter, *http.Request) bool
		ref    string
		code   string
		says   string
	}{
		"another layer of the same length":  {send(layer, changed(p.layers[0])), "app:1", sandbox.CodeUnsafeArchive, "not the one that was named"},
		"a layer that is said to be longer": {send(layer, append(bytes.Clone(p.layers[0]), 0)), "app:1", sandbox.CodeUnsafeArchive, "another length"},
		"a layer that is longer":            {unsaid(append(bytes.Clone(p.layers[0]), make([]byte, 1024)...)), "app:1", sandbox.CodeUnsafeArchive, "longer than was said"},
		"a layer without end":               {endless(layer), "app:1", sandbox.CodeUnsafeArchive, "longer than was said"},
		"another configuration":             {send("/blobs/"+p.config.Digest, []byte(`{}`)), "app:1", sandbox.CodeUnsafeArchive, "2 bytes that was said"},
		"a configuration without end":       {endless("/blobs/" + p.config.Digest), "app:1", sandbox.CodeTooLarge, "too long"},
		"another manifest":                  {send("/manifests/"+p.manifest.Digest, []byte(`{"config":{}}`)), "app:1", sandbox.CodeUnsafeArchive, "said to have"},
		"an index without end":              {endless("/manifests/1"), "app:1", sandbox.CodeTooLarge, "too long"},
		"another manifest than was pinned":  {send("/manifests/"+p.manifest.Digest, []byte(`{"config":{}}`)), "app@" + p.manifest.Digest, sandbox.CodeUnsafeArchive, "not the one that was named"},
		"a manifest that is no JSON":        {send("/manifests/1", []byte("<html>")), "app:1", sandbox.CodeUnsafeArchive, "cannot be read"},
		"nothing of that name":              {nil, "app:2", sandbox.CodeNotFound, "not there"},
		"no access":                         {func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true }, "app:1", sandbox.CodeForbidden, "does not give"},
		"a reference that is none":          {nil, "App:::", sandbox.CodeSpecInvalid, "no image's reference"},
	} {
		t.Run(name, func(t *testing.T) {
			s.set(c.meddle)
			store := openStore(t)
			_, err := s.pull(store, c.ref, quick)
			if codeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %v; want %s, …%s…", codeOf(err), err, c.code, c.says)
			}
			nothingKept(t, store)
		})
	}
}

// nothingKept says what a store holds though nothing was added.
func nothingKept(t *testing.T, s *template.Store) {
	t.Helper()
	got, err := s.Collect(t.Context())
	if err != nil || got != (template.Collected{}) {
		t.Errorf("%+v was kept, %v", got, err)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// cutting breaks off each answer with the layer after so many bytes of it.
func cutting(p pushed, layer, after int, parts bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		b := p.layers[layer]
		if !strings.HasSuffix(r.URL.Path, digestOf(b)) {
			return false
		}
		from := 0
		if begin, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && parts {
			from, _ = strconv.Atoi(strings.TrimSuffix(begin, "-"))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(b)-1, len(b)))
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(b)-from))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		to := min(len(b), from+after)
		if !parts {
			to = min(len(b), after)
		}
		_, _ = w.Write(b[from:to])
		if to < len(b) {
			panic(http.ErrAbortHandler)
		}
		return true
	}
}

// A layer that is cut again and again is taken up where it ended.
func TestCutLayerIsTakenUp(t *testing.T) {
	s, store := serve(t), openStore(t)
	p := s.push("1", layerOf(t, "a", 20<<20))
	s.set(cutting(p, 0, 3<<20, true))
	if _, err := s.pull(store, "app:1", quick); err != nil {
		t.Fatal(err)
	}
	asked := s.takeAsked("blobs/" + digestOf(p.layers[0]))
	if len(asked) < 7 || slices.Contains(asked[1:], asked[0]) {
		t.Errorf("asked for %q", asked)
	}
}

// A registry that does not know parts of a layer sends it from the beginning.
func TestCutLayerWithoutParts(t *testing.T) {
	s, store := serve(t), openStore(t)
	p := s.push("1", layerOf(t, "a", 4<<20))
	cut := cutting(p, 0, 3<<20, false)
	first := true
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digestOf(p.layers[0])) {
			return false
		}
		if first {
			first = false
			return cut(w, r)
		}
		_, _ = w.Write(p.layers[0])
		return true
	})
	if _, err := s.pull(store, "app:1", quick); err != nil {
		t.Fatal(err)
	}
}

// A registry that always breaks off is given up; what came whole is kept for the next
// time, which fetches only the rest.
func TestInterruptedPullGoesOn(t *testing.T) {
	s, store := serve(t), openStore(t)
	p := s.push("1", layerOf(t, "a", 1<<20), layerOf(t, "b", 1<<20))
	for name, meddle := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"cut at once":        cutting(p, 1, 0, true),
		"cut after a byte":   cutting(p, 1, 1, true),
		"cut after a little": cutting(p, 1, 16<<10, true),
		"cut, and no parts":  cutting(p, 1, 1000, false),
		"fails": func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, digestOf(p.layers[1])) {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
			return false
		},
	} {
		s.set(meddle)
		if _, err := s.pull(store, "app:1", quick); codeOf(err) != sandbox.CodeDisconnected {
			t.Errorf("%s: %v", name, err)
		}
		if asked := s.takeAsked("blobs/" + digestOf(p.layers[1])); len(asked) < quick.Tries || len(asked) > 2*quick.Tries { // net/http repeats some by itself
			t.Errorf("%s: asked for %q", name, asked)
		}
		if _, err := store.Get("app"); codeOf(err) != sandbox.CodeTemplateUnknown {
			t.Errorf("%s: it is there, %v", name, err)
		}
	}
	s.set(nil)
	if _, err := s.pull(store, "app:1", quick); err != nil {
		t.Fatal(err)
	}
	if asked := s.takeAsked("blobs/" + digestOf(p.layers[0])); len(asked) > 0 {
		t.Errorf("the layer that was here was asked for: %q", asked)
	}
}

// A registry that sends nothing, or next to nothing, is not waited for.
func TestSlowRegistry(t *testing.T) {
	s, store := serve(t), openStore(t)
	p := s.push("1", layerOf(t, "a", 1<<20))
	o := Options{Tries: 2, Pause: time.Millisecond, Patience: 200 * time.Millisecond}
	for name, c := range map[string]struct {
		suffix string
		drip   bool
	}{
		"no answer":          {"/manifests/1", false},
		"a layer that stops": {digestOf(p.layers[0]), false},
		"a layer that drips": {digestOf(p.layers[0]), true},
	} {
		s.set(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, c.suffix) {
				return false
			}
			for c.drip && r.Context().Err() == nil {
				_, _ = w.Write([]byte("x"))
				w.(http.Flusher).Flush() //nolint:forcetypeassert // it is one
				time.Sleep(time.Millisecond)
			}
			<-r.Context().Done()
			return true
		})
		if _, err := s.pull(store, "app:1", o); codeOf(err) != sandbox.CodeDisconnected {
			t.Errorf("%s: %v", name, err)
		}
		nothingKept(t, store)
	}
}

// A registry that is not there is said, and so is one that is not spoken to with TLS.
func TestRegistryThatIsDown(t *testing.T) {
	s, store := serve(t), openStore(t)
	s.host = "127.0.0.1:1"
	if _, err := s.pull(store, "app:1", quick); codeOf(err) != sandbox.CodeDisconnected {
		t.Error(err)
	}
}

// Credentials come from Docker's file, and reach nobody but the registry.
func TestCredentials(t *testing.T) {
	s, store := serve(t), openStore(t)
	p := s.push("1", layerOf(t, "a", 1<<10))
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("another server got %q", got)
		}
		_, _ = w.Write(p.layers[0])
	}))
	t.Cleanup(elsewhere.Close)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:secret"))
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Header.Get("Authorization") != basic:
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, digestOf(p.layers[0])):
			http.Redirect(w, r, elsewhere.URL+"/layer", http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	})
	if _, err := s.pull(store, "app:1", quick); codeOf(err) != sandbox.CodeForbidden {
		t.Errorf("without credentials: %v", err)
	}
	config := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, s.host, strings.TrimPrefix(basic, "Basic "))
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pull(store, "app:1", quick); err != nil {
		t.Error(err)
	}
}

// A token is fetched where a registry wants one, as Docker Hub does.
func TestToken(t *testing.T) {
	s, store := serve(t), openStore(t)
	s.push("1", layerOf(t, "a", 1<<10))
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/token":
			if r.URL.Query().Get("scope") != "repository:app:pull" {
				t.Errorf("scope %q", r.URL.Query()["scope"])
			}
			_, _ = w.Write([]byte(`{"token":"abc"}`))
		case r.Header.Get("Authorization") != "Bearer abc":
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+s.host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			return false
		}
		return true
	})
	if _, err := s.pull(store, "app:1", quick); err != nil {
		t.Error(err)
	}
}

// Who was spoken to with TLS cannot send us to where everybody reads along.
func TestRedirects(t *testing.T) {
	to := func(u string) *http.Request {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		return &http.Request{URL: parsed}
	}
	for _, c := range []struct {
		from, to string
		hops     int
		ok       bool
	}{
		{"https://a", "https://b", 1, true},
		{"http://a", "http://b", 1, true},
		{"https://a", "http://a", 1, false},
		{"https://a", "https://b", maxRedirects + 1, false},
	} {
		if err := checkRedirect(to(c.to), slices.Repeat([]*http.Request{to(c.from)}, c.hops)); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
