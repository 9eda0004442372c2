package registry

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"pinfold/internal/template"
	"pinfold/sandbox"
)

// served is a real registry, whose answers a test may change on their way.
type served struct {
	t     *testing.T
	host  string
	inner http.Handler

	mu    sync.Mutex
	asked []string // paths, with "+" where a part was asked for
	// meddle answers in the registry's place, where it returns true.
	meddle func(w http.ResponseWriter, r *http.Request) bool
}

func serve(t *testing.T) *served {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // nobody's credentials
	s := &served{t: t, inner: registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

// ServeHTTP implements http.Handler.
func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	what := strings.TrimPrefix(r.URL.Path, "/v2/app/")
	if r.Header.Get("Range") != "" {
		what += "+"
	}
	s.asked = append(s.asked, what)
	meddle := s.meddle
	s.mu.Unlock()
	if meddle == nil || !meddle(w, r) {
		s.inner.ServeHTTP(w, r)
	}
}

// takeAsked returns what was asked for since the last time.
func (s *served) takeAsked(prefix string) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if strings.HasPrefix(a, prefix) {
			list = append(list, a)
		}
	}
	s.asked = nil
	return list
}

// set changes what is done to answers.
func (s *served) set(meddle func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meddle = meddle
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func descriptorOf(b []byte, mediaType string) template.Descriptor {
	return template.Descriptor{MediaType: mediaType, Digest: digestOf(b), Size: int64(len(b))}
}

// put sends something to the registry.
func (s *served) put(method, path, mediaType string, b []byte) {
	s.t.Helper()
	req := httptest.NewRequest(method, "/v2/app/"+path, bytes.NewReader(b))
	req.Header.Set("Content-Type", mediaType)
	w := httptest.NewRecorder()
	if s.inner.ServeHTTP(w, req); w.Code != http.StatusCreated {
		s.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
}

func (s *served) blob(b []byte, mediaType string) template.Descriptor {
	s.t.Helper()
	s.put(http.MethodPost, "blobs/uploads/?digest="+digestOf(b), "application/octet-stream", b)
	return descriptorOf(b, mediaType)
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

// pushed is an image in the registry.
type pushed struct {
	layers   [][]byte
	config   template.Descriptor
	manifest template.Descriptor
	index    template.Descriptor
}

// push makes an image under a tag, in an index beside one for another machine.
func (s *served) push(tag string, layers ...[]byte) (p pushed) {
	s.t.Helper()
	p.layers = layers
	var diffs []string
	var list []template.Descriptor
	for _, l := range layers {
		diffs = append(diffs, digestOf(l))
		list = append(list, s.blob(l, "application/vnd.oci.image.layer.v1.tar"))
	}
	p.config = s.blob(asJSON(s.t, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
		"config": map[string]any{"User": "app", "WorkingDir": "/srv", "Env": []string{"A=b"}},
	}), "application/vnd.oci.image.config.v1+json")
	m := asJSON(s.t, map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": p.config, "layers": list})
	p.manifest = descriptorOf(m, manifestType)
	s.put(http.MethodPut, "manifests/"+p.manifest.Digest, manifestType, m)
	other := p.manifest
	p.index = p.manifest
	index := asJSON(s.t, map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []any{
		withPlatform(other, "s390x"), withPlatform(p.manifest, runtime.GOARCH),
	}})
	p.index = descriptorOf(index, indexType)
	s.put(http.MethodPut, "manifests/"+tag, indexType, index)
	return p
}

func withPlatform(d template.Descriptor, architecture string) map[string]any {
	return map[string]any{
		"mediaType": d.MediaType, "digest": d.Digest, "size": d.Size,
		"platform": map[string]any{"os": "linux", "architecture": architecture},
	}
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// layerOf is a tar of one file with so many bytes.
func layerOf(t *testing.T, name string, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.Read(content)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(size), ModTime: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func openStore(t *testing.T) *template.Store {
	t.Helper()
	s, err := template.Open(filepath.Join(t.TempDir(), "templates"), template.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// quick makes many tries in little time; how long one waits is a test's own.
var quick = Options{Tries: 4, Pause: time.Millisecond}

// pull fetches an image into a store.
func (s *served) pull(store *template.Store, reference string, o Options) (template.Template, error) {
	s.t.Helper()
	c, err := Image(s.t.Context(), s.host+"/"+reference, o)
	if err != nil {
		return template.Template{}, err
	}
	return store.Add(s.t.Context(), "app", c, nil)
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return sandbox.AsError(err).Code
}
