package docker

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A runtime that could not freeze a container is asked again, and what is not its fault is
// not.
func TestPauseIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []int
		fails   bool
	}{
		{"at the third try", []int{500, 500, 204}, false},
		{"it is paused", []int{409, 204}, true},
		{"it is gone", []int{404, 204}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int64
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "sock"))
			if err != nil {
				t.Fatal(err)
			}
			engine := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test
				if strings.HasSuffix(r.URL.Path, "/pause") {
					w.WriteHeader(c.answers[asked.Add(1)-1])
				}
			})}}
			engine.Start()
			defer engine.Close()
			d := New(Options{Engine: "unix://" + l.Addr().String()})
			client, err := d.engine()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			m := d.machine("m")
			m.Container = "c"
			err = m.freeze(ctx, client)
			if (err != nil) != c.fails {
				t.Error(err)
			}
			want := int64(len(c.answers))
			if c.fails {
				want = 1
			}
			if n := asked.Load(); n != want {
				t.Errorf("asked %d times, want %d", n, want)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("until there is no time", func(t *testing.T) {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "sock"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		engine := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test
			if strings.HasSuffix(r.URL.Path, "/pause") {
				w.WriteHeader(http.StatusInternalServerError)
				cancel()
			}
		})}}
		engine.Start()
		defer engine.Close()
		d := New(Options{Engine: "unix://" + l.Addr().String()})
		client, err := d.engine()
		if err != nil {
			t.Fatal(err)
		}
		m := d.machine("m")
		m.Container = "c"
		if err := m.freeze(ctx, client); err == nil {
			t.Error("it counts as paused")
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}
