package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
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

// A signal that comes while we connect to the terminal of a command ends us as later ones
// do: with the news that the command goes on, if it was started. Such a signal once killed
// us, which before its last moment had made the user's terminal raw.
func TestSignalsBeforeTheTerminalIsShown(t *testing.T) {
	for _, test := range []struct{ at, message, hint string }{
		{http.MethodPost, "cancelled before the server said that the command had started", "pinfold ps " + someBox},
		{http.MethodGet, "cancelled; the command goes on", "pinfold kill " + someBox + " prc_a"},
	} {
		t.Run(test.at, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.Method == test.at {
					if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
						t.Error(err)
					}
					<-r.Context().Done() // until the caller has gone
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusCreated)
				_ = json.NewEncoder(w).Encode(sandbox.Process{ID: "prc_a", Running: true})
			}))
			defer server.Close()
			c, err := client.New(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			f := &execFlags{id: someBox}
			f.command.Args = []string{"sleep"}
			var said *sandbox.Error
			if err := (&app{}).execTerminal(t.Context(), c.Sandbox(someBox), f); !errors.As(err, &said) || said.Message != test.message || said.Hint != test.hint {
				t.Errorf("%v", err)
			}
		})
	}
}
