package serve

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/config"
	"pinfold/sandbox"
)

// stateEnv makes this test binary a server on the named state directory.
const stateEnv = "PINFOLD_TEST_STATE"

func TestMain(m *testing.M) {
	if state := os.Getenv(stateEnv); state != "" {
		os.Exit(serveProcess(state))
	}
	os.Exit(m.Run())
}

// serveProcess is a server of its own whose programs end when told through
// their standard output's reader: each waits for a file.
func serveProcess(state string) int {
	c := config.Default()
	c.Listen, c.State = []string{"127.0.0.1:0"}, state
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	h := newHeld()
	go func() {
		<-h.started
		_ = os.WriteFile(filepath.Join(state, "started"), nil, 0o600)
		for {
			if _, err := os.Stat(filepath.Join(state, "release")); err == nil {
				close(h.release)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	err := Serve(context.Background(), c, Options{
		NewEngine: fakeEngine(h.program), Log: os.Stderr, Signals: signals,
		Say: func(line string) { _, _ = os.Stdout.WriteString(line + "\n") },
	})
	if err != nil {
		return 125
	}
	return 0
}

// A real process gets a real SIGTERM while a program runs: the program
// finishes, its result arrives, and the process ends with 0.
func TestSIGTERMWhileARunGoesOn(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), stateEnv+"="+state)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	r := &running{t: t, state: state, client: &http.Client{Timeout: time.Minute}}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			r.url = url
		}
	}
	go func() { // the pipe must not fill up
		for lines.Scan() {
		}
	}()
	key, err := os.ReadFile(filepath.Join(state, "first-key"))
	if err != nil {
		t.Fatal(err)
	}
	r.key = strings.TrimSpace(string(key))

	run := r.askLater("POST", "/v1/runs", aRun)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(state, "started")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the run does not start")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for status := http.StatusOK; status == http.StatusOK; { // until it says that it is ending
		status, _ = r.ask("GET", "/readyz", "")
	}
	if err := os.WriteFile(filepath.Join(state, "release"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := <-run
	if got := result(t, a.status, a.body); got.Status != sandbox.StatusSucceeded || got.Stdout != "finished\n" {
		t.Errorf("the run: %s", a.body)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process: %v", err)
	}
}
