package docker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// pausing is an engine that answers requests to pause so, one after the other, and is paused
// after the first that it does not refuse; then called.
func pausing(t *testing.T, answers []int, called func(n int)) (m *machine, asked *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Fatal(err)
	}
	asked = new(atomic.Int64)
	var paused atomic.Bool
	engine := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test
		switch {
		case strings.HasSuffix(r.URL.Path, "/pause"):
			n := int(asked.Add(1))
			answer := answers[min(n, len(answers))-1]
			paused.Store(answer == http.StatusNoContent)
			w.WriteHeader(answer)
			called(n)
		case strings.HasSuffix(r.URL.Path, "/json"):
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"Id": "c", "State": {"Paused": %t}}`, paused.Load())
		}
	})}}
	engine.Start()
	t.Cleanup(engine.Close)
	d := New(Options{Engine: "unix://" + l.Addr().String()})
	d.timeout = time.Minute
	t.Cleanup(func() { _ = d.Close() })
	m = d.machine("m")
	m.Container = "c"
	return m, asked
}

// A runtime that could not freeze a container, and an engine that has not heard yet that it
// goes on again, are asked again; what is neither is not.
func TestPauseIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		answers []int
		asked   int64
		fails   bool
	}{
		"at the third try":        {[]int{500, 500, 204}, 3, false},
		"it is believed paused":   {[]int{409, 204}, 2, false},
		"it is gone":              {[]int{404, 204}, 1, true},
		"what is asked for is no": {[]int{400, 204}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, asked := pausing(t, c.answers, func(int) {})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			engine, err := m.driver.engine()
			if err != nil {
				t.Fatal(err)
			}
			if err := m.bring(ctx, engine, true); (err != nil) != c.fails {
				t.Error(err)
			}
			if n := asked.Load(); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
		})
	}
	t.Run("until there is no time", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m, asked := pausing(t, []int{500}, func(n int) {
			if n == 3 {
				cancel()
			}
		})
		engine, err := m.driver.engine()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.bring(ctx, engine, true); err == nil || asked.Load() != 3 {
			t.Errorf("%v, after %d askings", err, asked.Load())
		}
	})
}
