//go:build linux

package dockerengine

import (
	"net/http"
	"strings"
	"testing"

	"pinfold/internal/driver/drivertest"
)

// An engine starts, takes an image of this host's packages, and leaves nothing.
func TestHostImage(t *testing.T) {
	if missing := Missing(Docker); missing != "" {
		drivertest.Missing(t, "%s", missing)
	}
	e, err := New(Docker)
	if e != nil {
		t.Cleanup(e.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := e.HostImage(t.Context(), "small", []string{"dash"}, []string{"/usr/bin/env"}); err != nil {
		t.Fatal(err)
	}
	said, err := e.call(t.Context(), http.MethodGet, "/images/small/json", nil)
	if err != nil || !strings.Contains(string(said), `"Os":"linux"`) {
		t.Errorf("%s, %v", said, err)
	}
	if err := e.Import(t.Context(), "broken", strings.NewReader("no archive")); err == nil {
		t.Error("what is no archive was imported")
	}
}
