//go:build linux

package library

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pinfold"
	"pinfold/client"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
	"pinfold/test/asuser"
)

func TestRun(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		var out, warn bytes.Buffer
		artifacts := map[string]string{}
		o := client.RunOptions{
			Stdout: &out, Stderr: &warn, IdempotencyKey: "once",
			Artifact: func(a sandbox.Artifact, content io.Reader) error {
				b, err := io.ReadAll(content)
				artifacts[a.Path] = string(b)
				return err
			},
		}
		spec := sandbox.Spec{Language: "sh", Code: "echo out; echo warn >&2; cat > made.txt; exit 3", Stdin: "in", Artifacts: []string{"*.txt"}}
		r := must(w.Run(t.Context(), spec, o))(t)
		if r.Status != sandbox.StatusFailed || *r.ExitCode != 3 || out.String() != "out\n" || warn.String() != "warn\n" || fmt.Sprint(artifacts) != "map[made.txt:in]" {
			t.Fatalf("%+v %q %q %v", r, out.String(), warn.String(), artifacts)
		}
		again := must(w.Run(t.Context(), spec, client.RunOptions{IdempotencyKey: "once"}))(t)
		if again.ID != r.ID || again.Stdout != "out\n" {
			t.Fatalf("ran again: %+v", again)
		}
		record := must(w.GetRun(t.Context(), r.ID))(t)
		if record.Status != sandbox.StatusFailed || record.Result == nil || record.Result.Stdout != "out\n" {
			t.Fatalf("%+v", record)
		}
		n := 0
		for item, err := range w.Runs(t.Context(), client.Filter{Statuses: []sandbox.Status{sandbox.StatusFailed}}) {
			ok(t, err)
			if n++; item.ID != r.ID {
				t.Fatalf("%+v", item)
			}
		}
		if n != 1 {
			t.Fatalf("%d runs are listed", n)
		}
		if _, err := w.Run(t.Context(), sandbox.Spec{Language: "sh", Code: "x", Limits: sandbox.Limits{MemoryBytes: 1}}, client.RunOptions{}); code(err) != sandbox.CodeLimitInvalid || sandbox.AsError(err).Field != "limits.memory_bytes" {
			t.Fatalf("%+v", sandbox.AsError(err))
		}
		if _, err := w.GetRun(t.Context(), "run_aaaaaaaaaaaaaaaaaaaaaaaaaa"); code(err) != sandbox.CodeNotFound {
			t.Fatal(err)
		}
	})
}

// Values are of the same Go types both ways, and numbers stay exact.
func TestResults(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		code := "class A:\n    def __repr__(self): return 'an A'\n    def _repr_json_(self): return {'n': 12345678901234567890}\nA()\n"
		r := must(w.Run(t.Context(), sandbox.Spec{Language: "python", Code: code}, client.RunOptions{}))(t)
		want := []sandbox.Rich{{"text/plain": "an A", "application/json": json.RawMessage(`{"n":12345678901234567890}`)}}
		if diff := cmp.Diff(want, r.Results); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
		spec := sandbox.Spec{Language: "python", Code: "import socket", AllowedImports: []string{}}
		if r := must(w.Run(t.Context(), spec, client.RunOptions{}))(t); r.Status != sandbox.StatusFailed || !strings.Contains(r.Stderr, "allowed_imports has nothing") {
			t.Fatalf("%s %s", r.Status, r.Stderr)
		}
	})
}

func TestARunThatIsCancelledLeavesNothing(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		r, err := w.Run(ctx, sandbox.Spec{Language: "sh", Code: "sleep 100"}, client.RunOptions{Stdout: io.Discard})
		if err == nil && r.Cause.Kind != sandbox.CauseCancelled || err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("%+v %v", r, err)
		}
	})
}

func TestLife(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{Metadata: map[string]string{"job": "7"}, Env: map[string]string{"A": "b"}})
		if info := must(b.Info(ctx))(t); info.State != sandbox.StateRunning || info.ID != b.ID() || len(info.Isolation.Enforced) == 0 {
			t.Fatalf("%+v", info)
		}
		if info := must(b.Extend(ctx, 3_600_000))(t); time.Until(info.ExpiresAt) < 59*time.Minute {
			t.Fatalf("%+v", info)
		}
		p := must(b.Exec(ctx, sandbox.Command{Shell: "echo $A; echo x >&2; exit 3"}, client.ExecOptions{}))(t)
		if p.Stdout != "b\n" || p.Stderr != "x\n" || *p.ExitCode != 3 || p.Running {
			t.Fatalf("%+v", p)
		}
		if all := must(b.Processes(ctx))(t); len(all) != 1 || all[0].ID != p.ID {
			t.Fatalf("%+v", all)
		}
		found := 0
		for info, err := range w.Sandboxes(ctx, client.Filter{Metadata: map[string]string{"job": "7"}, States: []sandbox.State{sandbox.StateRunning}}) {
			ok(t, err)
			if found++; info.ID != b.ID() {
				t.Fatalf("%+v", info)
			}
		}
		if found != 1 {
			t.Fatalf("%d sandboxes are listed", found)
		}
		for range 2 {
			if info := must(b.Destroy(ctx))(t); info.State != sandbox.StateEnded || info.Cause == nil || info.Cause.Kind != sandbox.CauseDestroyed {
				t.Fatalf("%+v", info)
			}
		}
		if _, err := b.Exec(ctx, sandbox.Command{Shell: "true"}, client.ExecOptions{}); code(err) != sandbox.CodeGone && code(err) != sandbox.CodeConflict {
			t.Fatalf("%v (%s)", err, code(err))
		}
	})
}

func TestAsOrdinaryUser(t *testing.T) {
	asuser.Rerun(t, "TestLife", []string{agenttest.Agent}, nil)
}

func TestStreams(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{})
		var out, warn bytes.Buffer
		const size = 8 << 20 // more than is kept of it
		input := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		id := ""
		p := must(b.Exec(ctx, sandbox.Command{Shell: "cat; echo done >&2"}, client.ExecOptions{
			Stdin: bytes.NewReader(input), Stdout: &out, Stderr: &warn, Started: func(s string) { id = s },
		}))(t)
		if !bytes.Equal(out.Bytes(), input) || warn.String() != "done\n" || p.ID != id || p.StdoutBytes != size || *p.ExitCode != 0 {
			t.Fatalf("%d bytes, %q, %+v", out.Len(), warn.String(), p)
		}
		for range 20 { // a program that prints before anybody could come back for it
			n := counter(0)
			must(b.Exec(ctx, sandbox.Command{Shell: "head -c 1000000 /dev/zero", OutputBytes: 1000}, client.ExecOptions{Stdout: &n}))(t)
			if n != 1_000_000 {
				t.Fatalf("%d bytes came", n)
			}
		}
		if _, err := b.Exec(ctx, sandbox.Command{Shell: "yes"}, client.ExecOptions{Stdout: full{}}); !errors.Is(err, errFull) {
			t.Fatal(err)
		}
	})
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestProcess(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{})
		p := w.start(t, b, sandbox.Command{Shell: "echo one; echo two; read x; echo $x; exec sleep 100", Stdin: true})
		if n := must(p.WriteStdin(ctx, strings.NewReader("typed\n")))(t); n != 6 {
			t.Fatal(n)
		}
		ok(t, p.CloseStdin(ctx))
		for must(p.Info(ctx))(t).StdoutBytes < 14 {
			time.Sleep(10 * time.Millisecond)
		}
		var out bytes.Buffer
		if info := must(p.Output(ctx, client.OutputOptions{Stdout: &out, StdoutOffset: 4, Now: true}))(t); out.String() != "two\ntyped\n" || !info.Running {
			t.Fatalf("%q %+v", out.String(), info)
		}
		ok(t, p.Signal(ctx, "TERM"))
		out.Reset()
		if info := must(p.Output(ctx, client.OutputOptions{Stdout: &out, StdoutOffset: -1}))(t); out.String() != "one\ntwo\ntyped\n" || info.Signal != "SIGTERM" {
			t.Fatalf("%q %+v", out.String(), info)
		}
		if info := must(p.Wait(ctx))(t); info.Running || info.Signal != "SIGTERM" {
			t.Fatalf("%+v", info)
		}

		screen := w.start(t, b, sandbox.Command{Shell: "stty size; read x; stty size", Terminal: &sandbox.Terminal{Cols: 80, Rows: 24}})
		for must(screen.Info(ctx))(t).StdoutBytes == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		ok(t, screen.Resize(ctx, 100, 40))
		must(screen.WriteStdin(ctx, strings.NewReader("\r")))(t)
		out.Reset()
		must(screen.Output(ctx, client.OutputOptions{Stdout: &out}))(t)
		if got := strings.Fields(out.String()); fmt.Sprint(got) != "[24 80 40 100]" {
			t.Fatalf("%q", out.String())
		}
	})
}

func TestFiles(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{})
		content := bytes.Repeat([]byte("0123456789"), 300_000)
		ok(t, b.WriteFile(ctx, "a/b/c.bin", 0o600, -1, bytes.NewReader(content)))
		ok(t, b.WriteFile(ctx, "run.sh", 0o755, 17, strings.NewReader("#!/bin/sh\necho hi")))
		if p := must(b.Exec(ctx, sandbox.Command{Args: []string{"./run.sh"}}, client.ExecOptions{}))(t); p.Stdout != "hi\n" {
			t.Fatalf("%+v", p)
		}
		var out bytes.Buffer
		if n := must(b.ReadFile(ctx, "a/b/c.bin", 0, -1, &out))(t); n != int64(len(content)) || !bytes.Equal(out.Bytes(), content) {
			t.Fatal(n)
		}
		out.Reset()
		if n := must(b.ReadFile(ctx, "/home/user/a/b/c.bin", 5, 10, &out))(t); n != 10 || out.String() != "5678901234" {
			t.Fatal(n, out.String())
		}
		if info := must(b.Stat(ctx, "a/b/c.bin"))(t); info.Path != "/home/user/a/b/c.bin" || info.Size != int64(len(content)) || info.Mode != 0o600 || info.Type != sandbox.FileRegular {
			t.Fatalf("%+v", info)
		}
		ok(t, b.Mkdir(ctx, "d/e", 0))
		ok(t, b.Move(ctx, "run.sh", "d/e/run.sh"))
		ok(t, b.Remove(ctx, "a"))
		list, err := b.List(ctx, ".", 3, 0)
		ok(t, err)
		var paths []string
		for _, i := range list.Items {
			paths = append(paths, i.Path)
		}
		if fmt.Sprint(paths, list.More) != "[/home/user/d /home/user/d/e /home/user/d/e/run.sh] false" {
			t.Fatal(paths, list.More)
		}
		changes, err := b.Changes(ctx, 0)
		ok(t, err)
		if len(changes.Items) == 0 {
			t.Fatal("nothing has changed")
		}
		for _, path := range []string{"\x00", "", "no such file"} {
			if _, err := b.ReadFile(ctx, path, 0, -1, io.Discard); err == nil {
				t.Errorf("%q could be read", path)
			}
		}
		if _, err := b.Stat(ctx, "nothing"); code(err) != sandbox.CodeFileNotFound {
			t.Fatalf("%v (%s)", err, code(err))
		}
	})
}

func TestArchives(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{})
		var in bytes.Buffer
		tw := tar.NewWriter(&in)
		ok(t, tw.WriteHeader(&tar.Header{Name: "x/y.txt", Typeflag: tar.TypeReg, Size: 2, Mode: 0o644}))
		must(tw.Write([]byte("hi")))(t)
		ok(t, tw.Close())
		if done := must(b.Upload(ctx, "in", client.FormatTar, &in))(t); done.Files != 1 || done.Bytes != 2 {
			t.Fatalf("%+v", done)
		}
		must(b.Exec(ctx, sandbox.Command{Shell: "ln -s /etc/passwd in/link"}, client.ExecOptions{}))(t)
		var out bytes.Buffer
		if skipped := must(b.Download(ctx, "in", client.FormatTar, &out))(t); skipped != 1 {
			t.Fatalf("%d are said to be left out", skipped)
		}
		names := []string{}
		for r := tar.NewReader(&out); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			ok(t, err)
			names = append(names, strings.TrimSuffix(h.Name, "/"))
		}
		if fmt.Sprint(names) != "[x x/y.txt]" {
			t.Fatal(names)
		}
		in.Reset()
		tw = tar.NewWriter(&in)
		ok(t, tw.WriteHeader(&tar.Header{Name: "../evil", Typeflag: tar.TypeReg, Size: 2, Mode: 0o644}))
		must(tw.Write([]byte("hi")))(t)
		ok(t, tw.Close())
		if _, err := b.Upload(ctx, "in", client.FormatTar, &in); code(err) != sandbox.CodeUnsafeArchive {
			t.Fatalf("%v (%s)", err, code(err))
		}
	})
}

// A sandbox that has no inode left says so, of the file that found none.
func TestNoInodeLeftIsSaid(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{Limits: sandbox.Limits{Inodes: 128}})
		var in bytes.Buffer
		tw := tar.NewWriter(&in)
		for i := range 200 {
			ok(t, tw.WriteHeader(&tar.Header{Name: fmt.Sprintf("f%d", i), Typeflag: tar.TypeReg, Mode: 0o644}))
		}
		ok(t, tw.Close())
		_, err := b.Upload(ctx, "in", client.FormatTar, &in)
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeTooLarge || e.Field != "limits.inodes" ||
			!regexp.MustCompile(`^in/f[0-9]+: the limit of 128 inodes \(files and directories\) is reached$`).MatchString(e.Message) {
			t.Fatalf("%+v", e)
		}
		must(b.Exec(ctx, sandbox.Command{Shell: "i=0; while : > x$i; do i=$((i+1)); done"}, client.ExecOptions{}))(t)
		if e := sandbox.AsError(b.Mkdir(ctx, "more", 0o755)); e == nil || e.Field != "limits.inodes" {
			t.Fatalf("%+v", e)
		}
	})
}

// A sandbox that has as many processes as it may says so, and blames nobody else.
func TestNoProcessLeftIsSaid(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{Limits: sandbox.Limits{Processes: 3}})
		ended := make(chan error, 10) // more than the limit, and what the agent may have of its own
		for range cap(ended) {
			go func() {
				_, err := b.Exec(ctx, sandbox.Command{Args: []string{"sleep", "60"}}, client.ExecOptions{})
				ended <- err
			}()
		}
		e := sandbox.AsError(<-ended)
		must(b.Destroy(ctx))(t)
		for range cap(ended) - 1 {
			<-ended
		}
		if e == nil || e.Code != sandbox.CodeTooLarge || e.Field != "limits.processes" || e.Hint == "" ||
			e.Message != "starting sleep: the limit of 3 processes (and threads) is reached" {
			t.Fatalf("%+v", e)
		}
	})
}

func TestWatch(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b := w.create(t, sandbox.Create{})
		seen := errors.New("seen")
		err := b.Watch(ctx, ".", true, func(e sandbox.FileEvent) error {
			switch {
			case e.Kind == client.KindReady:
				go func() { _ = b.WriteFile(ctx, "new.txt", 0, 1, strings.NewReader("x")) }()
			case e.Path == "/home/user/new.txt":
				return seen
			}
			return nil
		})
		if !errors.Is(err, seen) {
			t.Fatalf("%v (%s)", err, code(err))
		}
	})
}

func TestPort(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{})
		ok(t, b.WriteFile(ctx, "index.html", 0, -1, strings.NewReader("inside\n")))
		w.start(t, b, sandbox.Command{Args: []string{"python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"}})
		web := &http.Client{Transport: w.port(t, b, 8000)}
		for deadline := time.Now().Add(time.Minute); ; {
			body, err := fetch(ctx, web)
			if err == nil && body == "inside\n" {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q %v", body, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

func fetch(ctx context.Context, web *http.Client) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://box/index.html", nil)
	if err != nil {
		return "", err
	}
	resp, err := web.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestServices(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		must(w.Run(ctx, sandbox.Spec{Language: "sh", Code: "true"}, client.RunOptions{}))(t)
		if days := must(w.Usage(ctx, time.Time{}, time.Time{}))(t); len(days) != 1 || days[0].Runs != 1 {
			t.Fatalf("%+v", days)
		}
		if names := must(w.Templates(ctx))(t); len(names) == 0 || names[0] != sandbox.TemplateHost {
			t.Fatal(names)
		}
		found := false
		for _, l := range must(w.Languages(ctx))(t) {
			found = found || l.Name == "sh" && l.Available
		}
		if !found {
			t.Fatal("there is no shell")
		}
		must(w.SetPool(ctx, sandbox.PoolSpec{Name: "p", Min: 1}))(t)
		for pools := must(w.Pools(ctx))(t); pools[0].Available < 1; pools = must(w.Pools(ctx))(t) {
			time.Sleep(10 * time.Millisecond)
		}
		b := w.create(t, sandbox.Create{})
		if info := must(b.Info(ctx))(t); !info.Warm {
			t.Fatalf("%+v", info)
		}
		ok(t, w.RemovePool(ctx, "p"))
		if pools := must(w.Pools(ctx))(t); len(pools) != 0 {
			t.Fatalf("%+v", pools)
		}
	})
}

func TestOpenWithoutAnAgentSaysHowToGetOne(t *testing.T) {
	for _, agent := range []string{"", "relative/pinfold-agent", "/nowhere/pinfold-agent", t.TempDir()} {
		local, err := pinfold.Open(t.Context(), pinfold.Options{Agent: agent})
		if err == nil {
			_ = local.Close()
		}
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeResourceUnavailable || e.Field != "Agent" || !strings.Contains(e.Hint, "go build -o pinfold-agent pinfold/cmd/pinfold-agent") {
			t.Errorf("%q: %+v", agent, e)
		}
	}
}

func TestTwoProcessesCannotHaveOneState(t *testing.T) {
	dir, agent := t.TempDir(), agentFile(t)
	first := must(pinfold.Open(t.Context(), pinfold.Options{Agent: agent, StateDir: dir}))(t)
	defer first.Close()
	if _, err := pinfold.Open(t.Context(), pinfold.Options{Agent: agent, StateDir: dir}); code(err) != sandbox.CodeConflict {
		t.Fatalf("%v (%s)", err, code(err))
	}
}
