//go:build linux

package library

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"pinfold/client"
	"pinfold/sandbox"
)

// A run that nobody waits for can be listed, followed and cancelled, and others
// of it are told what it printed.
func TestRunThatIsStarted(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		run := must(w.StartRun(t.Context(), sandbox.Spec{Language: "sh", Code: "echo begun; echo warn >&2; sleep 600"}, client.StartOptions{IdempotencyKey: "k"}))(t)
		printed := make(chan struct{})
		var result *sandbox.Result
		var failed error
		var out signalling
		out.f = func() { close(printed) }
		over := make(chan struct{})
		go func() {
			defer close(over)
			result, failed = w.WatchRun(t.Context(), run.ID, client.WatchOptions{Stdout: &out})
		}()
		<-printed
		n := 0
		for item, err := range w.Runs(t.Context(), client.Filter{RunStates: []sandbox.RunState{sandbox.RunRunning}, Languages: []string{"sh"}, Since: run.CreatedAt}) {
			ok(t, err)
			if n++; item.ID != run.ID || item.StartedAt.IsZero() {
				t.Fatalf("%+v", item)
			}
		}
		if n != 1 {
			t.Fatalf("%d runs are listed", n)
		}
		for range 2 {
			ended := must(w.CancelRun(t.Context(), run.ID))(t)
			if ended.State != sandbox.RunFinished || ended.Cause != sandbox.CauseCancelled || ended.Result.Stdout != "begun\n" || ended.Result.Status != sandbox.StatusKilled {
				t.Fatalf("%+v", ended)
			}
		}
		<-over
		if failed != nil || result.ID != run.ID || out.String() != "begun\n" {
			t.Fatalf("%+v %v %q", result, failed, out.String())
		}
		short := must(w.StartRun(t.Context(), sandbox.Spec{Language: "sh", Code: "echo done"}, client.StartOptions{}))(t)
		if r := must(w.WaitRun(t.Context(), short.ID))(t); r.Result == nil || r.Result.Stdout != "done\n" || r.FinishedAt.IsZero() {
			t.Fatalf("%+v", r)
		}
		if _, err := w.CancelRun(t.Context(), "run_aaaaaaaaaaaaaaaaaaaaaaaaaa"); code(err) != sandbox.CodeNotFound {
			t.Fatal(err)
		}
	})
}

// signalling calls f at the first write.
type signalling struct {
	bytes.Buffer
	f    func()
	once sync.Once
}

func (s *signalling) Write(b []byte) (int, error) {
	s.once.Do(s.f)
	return s.Buffer.Write(b)
}

// A connection to a port carries any bytes, and each direction ends by itself.
func TestDial(t *testing.T) {
	const server = `import socket
s = socket.create_server(("127.0.0.1", 9000))
print("listening", flush=True)
c, _ = s.accept()
n = 0
while b := c.recv(65536):
    n += len(b)
c.sendall(b"got %d" % n)
c.close()
input()`
	both(t, func(t *testing.T, w way) {
		b := w.create(t, sandbox.Create{})
		p := w.start(t, b, sandbox.Command{Args: []string{"python3", "-c", server}, Stdin: true})
		out := signalling{}
		listening := make(chan struct{})
		out.f = func() { close(listening) }
		go func() { _, _ = p.Output(t.Context(), client.OutputOptions{Stdout: &out}) }()
		<-listening
		c := must(b.Dial(t.Context(), 9000))(t)
		defer c.Close()
		if _, err := c.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			t.Fatal(err)
		}
		ok(t, c.(interface{ CloseWrite() error }).CloseWrite())
		if got := must(io.ReadAll(c))(t); string(got) != "got 1048576" {
			t.Fatalf("%q", got)
		}
		if _, err := b.Dial(t.Context(), 9999); code(err) != sandbox.CodePortClosed {
			t.Fatal(err)
		}
	})
}
