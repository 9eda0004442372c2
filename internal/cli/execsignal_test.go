package cli

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/client"
)

// A signal that comes before we know that the command has started is the command's, as
// soon as we do. Where that news does not come, and at the second signal, we end.
func TestSignalsBeforeTheCommandIsKnown(t *testing.T) {
	for _, test := range []struct {
		name      string
		grace     time.Duration
		signals   []os.Signal
		started   bool // after the first signal
		cancelled bool
		told      string
	}{
		{"it had started", time.Minute, []os.Signal{syscall.SIGTERM}, true, false, "SIGTERM"},
		{"no news", time.Millisecond, []os.Signal{syscall.SIGTERM}, false, true, ""},
		{"two signals", time.Minute, []os.Signal{syscall.SIGTERM, syscall.SIGINT}, false, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			told := make(chan string, 2)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				told <- string(b)
				w.WriteHeader(http.StatusNoContent)
			}))
			defer server.Close()
			c, err := client.New(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := &relay{signals: make(chan os.Signal), process: make(chan *client.Process), grace: test.grace, done: make(chan struct{})}
			r.over.Go(func() { r.run(ctx, cancel) })
			defer r.stop()
			for _, s := range test.signals {
				r.signals <- s
			}
			if test.started {
				r.to(c.Sandbox("sbx_a").Process("prc_a"))
				if got := <-told; !strings.Contains(got, test.told) {
					t.Errorf("the command was told %q", got)
				}
			}
			if test.cancelled {
				<-ctx.Done()
			} else if ctx.Err() != nil {
				t.Error("we end")
			}
			if len(told) > 0 {
				t.Errorf("told more: %q", <-told)
			}
		})
	}
}
