//go:build linux

package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// livingTests are what a sandbox that lives longer is asked for.
var livingTests = []test{
	{"a terminal", (*harness).testTerminal},
	{"a terminal of a real kernel", (*harness).testRealTerminal},
	{"list and move", (*harness).testListAndMove},
	{"parts of a file", (*harness).testRanges},
	{"watch", (*harness).testWatch},
	{"dial", (*harness).testDial},
	{"dial a port where nobody is", (*harness).testDialNobody},
	{"a destroyed machine ends what is under way", (*harness).testLivingEnds},
}

// shown is what a terminal has shown.
type shown struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to it.
func (s *shown) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *shown) has(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), what)
}

// eventually waits until something is so, as long as the whole test may take.
func (h *harness) eventually(what string, is func() bool) {
	h.Helper()
	for ; !is(); time.Sleep(2 * time.Millisecond) {
		if h.ctx.Err() != nil {
			h.Fatalf("never: %s", what)
		}
	}
}

// onTerminal starts a command on a terminal.
func (b *box) onTerminal(args ...string) (*guest.Process, *io.PipeWriter, *shown) {
	b.h.Helper()
	if b.h.o.NoTerminals {
		_, err := b.Start(b.h.ctx, guest.Command{Args: args, Env: env, Terminal: &wire.TerminalSize{Cols: 91, Rows: 33}}, guest.Streams{})
		if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeResourceUnavailable {
			b.h.Fatalf("a terminal where there are none: %v", err)
		}
		b.h.Skip("this driver's machines have no terminals here")
	}
	keys, typing := io.Pipe()
	b.h.Cleanup(func() { _ = typing.Close() })
	out := &shown{}
	cmd := guest.Command{Args: args, Env: env, Terminal: &wire.TerminalSize{Cols: 91, Rows: 33}}
	p, err := b.Start(b.h.ctx, cmd, guest.Streams{Stdin: keys, Stdout: out})
	if err != nil {
		b.h.Fatalf("start %q on a terminal: %v", args, err)
	}
	return p, typing, out
}

func (h *harness) typeIn(w io.Writer, keys string) {
	h.Helper()
	if _, err := io.WriteString(w, keys); err != nil {
		h.Fatalf("type: %v", err)
	}
}

func (h *harness) testTerminal() {
	b := h.box(sandbox.Limits{})
	p, keys, out := b.onTerminal("/bin/cat")
	h.typeIn(keys, "hello\n")
	h.eventually("what was typed and what cat said", func() bool {
		return strings.Count(strings.ReplaceAll(out.String(), "\r", ""), "hello\n") == 2
	})
	if err := p.Resize(100, 40); err != nil {
		h.Errorf("Resize: %v", err)
	}
	_ = keys.Close()
	if exit, err := p.Wait(h.ctx); err != nil || exit.Code != 0 || exit.Signal != 0 {
		h.Errorf("cat at the end of its input: %+v, %v", exit, err)
	}
	p, keys, _ = b.onTerminal("/bin/cat")
	h.typeIn(keys, "\x03")
	if exit, err := p.Wait(h.ctx); err != nil || exit.Signal == 0 {
		h.Errorf("cat after ^C: %+v, %v", exit, err)
	}
}

// String is everything shown so far.
func (s *shown) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (h *harness) testRealTerminal() {
	if !h.o.Kernel {
		h.Skip("this driver's machines hold no real processes")
	}
	b := h.box(sandbox.Limits{})
	p, keys, out := b.onTerminal("/bin/sh", "-c",
		"test -t 0 && test -t 1 && test -t 2 && echo three; test -r $(tty) && test -w $(tty) && echo mine; echo controlling >/dev/tty; echo named >/dev/stdout; echo again >/dev/stderr; stty size; trap 'stty size' WINCH; echo ready; read x; echo over")
	for _, want := range []string{"three", "mine", "controlling", "named", "again", "33 91", "ready"} {
		h.eventually(want, func() bool { return out.has(want) })
	}
	if err := p.Resize(120, 50); err != nil {
		h.Errorf("Resize: %v", err)
	}
	// The signal alone may have ended the shell's read, and then the shell:
	// nobody takes what is typed any more.
	go func() { _, _ = io.WriteString(keys, "\n") }()
	if exit, err := p.Wait(h.ctx); err != nil || exit.Code != 0 {
		h.Errorf("the shell: %+v, %v: %q", exit, err, out.String())
	}
	h.eventually("the new size", func() bool { return out.has("50 120") })
}

func (h *harness) write(b *box, path, content string) {
	h.Helper()
	if err := b.WriteFile(h.ctx, path, 0o644, -1, strings.NewReader(content)); err != nil {
		h.Fatalf("WriteFile %s: %v", path, err)
	}
}

func (h *harness) testListAndMove() {
	b := h.box(sandbox.Limits{})
	h.write(b, "dir/sub/file", "content")
	h.write(b, "other", "old")
	see := func(dir string, depth int) string {
		h.Helper()
		found, err := b.List(h.ctx, dir, depth, 100)
		if err != nil {
			h.Fatalf("List %s: %v", dir, err)
		}
		var all []string
		for _, e := range found.Items {
			all = append(all, e.Path+":"+e.Type)
		}
		return strings.Join(all, " ")
	}
	if got := see(".", 1); got != "dir:dir other:file" {
		h.Errorf("the home holds %q", got)
	}
	if got := see(b.plan.User.Home, 3); got != "dir:dir dir/sub:dir dir/sub/file:file other:file" {
		h.Errorf("the home and below hold %q", got)
	}
	for _, m := range [][2]string{{"dir/sub/file", "other"}, {"dir", "new/place"}} {
		if err := b.Move(h.ctx, m[0], m[1]); err != nil {
			h.Errorf("Move %s to %s: %v", m[0], m[1], err)
		}
	}
	if got := see("new", 3); got != "place:dir place/sub:dir" {
		h.Errorf("what was moved holds %q", got)
	}
	if err := b.Move(h.ctx, "other", "new"); err == nil || sandbox.AsError(err).Code != sandbox.CodeNotRegularFile {
		h.Errorf("a file over a directory: %v", err)
	}
	if err := b.Move(h.ctx, "other", b.plan.User.Tmp+"/far/other"); err != nil {
		h.Errorf("Move to /tmp: %v", err)
	}
	var got bytes.Buffer
	if _, err := b.ReadFile(h.ctx, b.plan.User.Tmp+"/far/other", 100, &got); err != nil || got.String() != "content" {
		h.Errorf("what was moved twice: %q, %v", got.String(), err)
	}
}

func (h *harness) testRanges() {
	b := h.box(sandbox.Limits{})
	content := strings.Repeat("0123456789", 50_000)
	h.write(b, "file", content)
	for _, r := range [][2]int64{{0, -1}, {0, 5}, {7, 300_000}, {499_999, 10}, {500_000, -1}, {600_000, 3}} {
		var got bytes.Buffer
		want := content[min(r[0], int64(len(content))):]
		if r[1] >= 0 {
			want = want[:min(r[1], int64(len(want)))]
		}
		n, err := b.ReadRange(h.ctx, "file", r[0], r[1], &got)
		if err != nil || n != int64(len(want)) || got.String() != want {
			h.Errorf("range %v: %d bytes, %v", r, n, err)
		}
	}
}

var errSeen = errors.New("seen")

func (h *harness) testWatch() {
	b := h.box(sandbox.Limits{})
	h.write(b, "dir/first", "1")
	ready, ended := make(chan struct{}), make(chan error, 1)
	var mu sync.Mutex
	seen := map[string]bool{}
	go func() {
		ended <- b.Watch(h.ctx, "dir", true, func(e wire.WatchEvent) error {
			if e.Kind == wire.WatchReady {
				close(ready)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[e.Kind+" "+e.Path] = true
			if e.Kind == wire.WatchRemoved {
				return errSeen
			}
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		h.Fatalf("Watch: %v", err)
	}
	h.write(b, "dir/second", "2")
	h.write(b, "dir/second", "22")
	if err := errors.Join(b.Move(h.ctx, "dir/second", "dir/third"), b.Remove(h.ctx, "dir/third")); err != nil {
		h.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errSeen) {
		h.Fatalf("Watch: %v", err)
	}
	for _, want := range []string{"created second", "modified second", "moved_from second", "moved_to third", "removed third"} {
		if !seen[want] {
			h.Errorf("%q was not seen: %v", want, seen)
		}
	}
}

func (h *harness) testDial() {
	if !h.o.Kernel {
		h.dialHTTP(h.box(sandbox.Limits{}))
		return
	}
	if h.o.NoPorts {
		h.Skip("this driver's machines have no sockets")
	}
	b := h.probed(sandbox.Limits{})
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		var port int
		b.hold(&port, "serve", addr)
		conn, err := b.Guest.Dial(h.ctx, port)
		if err != nil {
			h.Fatalf("Dial %s: %v", addr, err)
		}
		content := bytes.Repeat([]byte("pinfold!"), 100_000)
		go func() {
			_, _ = conn.Write(content) // seen by what comes back
			if half, ok := conn.(*guest.Conn); ok {
				_ = half.CloseWrite()
			}
		}()
		if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, content) {
			h.Errorf("%s: %d bytes came back, %v", addr, len(got), err)
		}
		if err := conn.Close(); err != nil {
			h.Errorf("Close: %v", err)
		}
	}
}

// dialHTTP asks port 80, where every machine without a kernel answers.
func (h *harness) dialHTTP(b *box) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.Guest.Dial(ctx, 80)
	}}}
	defer client.CloseIdleConnections()
	for i := range 3 {
		answer, err := client.Post(fmt.Sprintf("http://inside/%d", i), "text/plain", strings.NewReader("body"))
		if err != nil {
			h.Fatalf("POST: %v", err)
		}
		got, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if want := fmt.Sprintf("POST /%d\nbody", i); err != nil || string(got) != want {
			h.Errorf("%q, %v", got, err)
		}
	}
}

func (h *harness) testDialNobody() {
	b := h.box(sandbox.Limits{})
	_, err := b.Guest.Dial(h.ctx, 4711)
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodePortClosed || e.Hint == "" {
		h.Errorf("Dial: %v", err)
	}
}

func (h *harness) testLivingEnds() {
	b := h.box(sandbox.Limits{})
	p, _, _ := b.onTerminal("/bin/cat")
	watching, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- b.Watch(h.ctx, ".", true, func(wire.WatchEvent) error { close(watching); return nil })
	}()
	<-watching
	h.destroy(b.Machine)
	if _, err := p.Wait(h.ctx); err == nil {
		h.Error("a process outlived its machine")
	}
	if err := <-ended; err == nil || sandbox.AsError(err).Code != sandbox.CodeProtocol {
		h.Errorf("Watch: %v", err)
	}
}
