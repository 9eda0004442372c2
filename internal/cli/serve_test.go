//go:build !lean

package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/config"
	"pinfold/internal/serve"
	"pinfold/sandbox"
)

// outcome is what one command line came to.
type outcome struct {
	status         int
	stdout, stderr string
	served         *config.Config
	options        serve.Options
}

// serveWith runs a command line whose server is a stand-in.
func serveWith(t *testing.T, found []serve.Finding, fail error, args ...string) outcome {
	t.Helper()
	var o outcome
	files := map[string]*os.File{}
	for _, name := range []string{"in", "out", "err"} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[name] = f
	}
	o.status = Main(t.Context(), Deps{
		Args: args, Stdin: files["in"], Stdout: files["out"], Stderr: files["err"], Version: "test",
		Whole: Whole{
			Serve: func(_ context.Context, c *config.Config, so serve.Options) error {
				o.served, o.options = c, so
				if so.Say != nil {
					so.Say("ready \x1b[2J")
				}
				return fail
			},
			CheckServe: func(context.Context, *config.Config) []serve.Finding { return found },
		},
	})
	for name, into := range map[string]*string{"out": &o.stdout, "err": &o.stderr} {
		if _, err := files[name].Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(files[name])
		if err != nil {
			t.Fatal(err)
		}
		*into = string(b)
	}
	return o
}

func TestServeFlagsOverrideTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte("state: /from/file\ndomain: file.example.com\nlog: {level: warn}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := serveWith(t, nil, nil, "serve", "--config", file, "--state", "/from/flag", "--listen", "127.0.0.1:0", "--listen", "unix:/x.sock", "--log-level", "debug")
	if o.status != 0 || o.served == nil {
		t.Fatalf("%+v", o)
	}
	c := o.served
	if c.State != "/from/flag" || c.Domain != "file.example.com" || len(c.Listen) != 2 || c.Log.Level != "debug" {
		t.Errorf("%+v", c)
	}
	if o.stderr != "pinfold: ready \\x1b[2J\n" || o.stdout != "" {
		t.Errorf("stdout %q, stderr %q", o.stdout, o.stderr)
	}
	// SIGHUP reads the same file, with the same flags over it.
	if again, err := o.options.Reload(); err != nil || again.State != "/from/flag" || again.Domain != "file.example.com" {
		t.Errorf("%+v, %v", again, err)
	}
	if err := os.WriteFile(file, []byte("stat: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.options.Reload(); err == nil {
		t.Error("a broken file was read again")
	}
}

func TestServeErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(file, []byte("log:\n  levle: info\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"--config", file}, []string{"log.levle", "p.yaml:2:3", `did you mean "level"?`}},
		{[]string{"--config", filepath.Join(dir, "none")}, []string{"no such file"}},
		{[]string{"--listen", "0.0.0.0:80"}, []string{"--listen: ", "--tls-cert", "--insecure-listen"}},
		{[]string{"--listen", "nonsense"}, []string{"127.0.0.1:7463"}},
		{[]string{"--tls-cert", "x"}, []string{"--tls-cert: ", "--tls-key"}},
		{[]string{"--log-format", "xml"}, []string{"--log-format: "}},
		{[]string{"--json"}, []string{"--check"}},
		{[]string{"--config", ""}, []string{"--config: the value is empty"}},
		{[]string{"--state", "", "--check"}, []string{"--state: the value is empty"}},
		{[]string{"--lisen", "x"}, []string{"--listen"}},
		{[]string{"argument"}, []string{"no arguments"}},
	} {
		o := serveWith(t, nil, nil, append([]string{"serve"}, c.args...)...)
		if o.status != exitPinfold || o.served != nil {
			t.Errorf("%q: status %d", c.args, o.status)
		}
		for _, w := range c.words {
			if !strings.Contains(o.stderr+o.stdout, w) {
				t.Errorf("%q: %q does not say %q", c.args, o.stderr, w)
			}
		}
	}
	// Whether it is all that is wrong is said.
	const more = `more is wrong: "pinfold serve --check"`
	if o := serveWith(t, nil, nil, "serve", "--config", file); strings.Contains(o.stderr, more) {
		t.Errorf("one error: %s", o.stderr)
	}
	o := serveWith(t, nil, nil, "serve", "--config", file, "--log-format", "xml")
	if !strings.Contains(o.stderr, "log.levle") || !strings.Contains(o.stderr, more) || !strings.Contains(o.stderr, `hint: did you mean "level"?`) {
		t.Errorf("two errors: %s", o.stderr)
	}
	broken := &sandbox.Error{Code: sandbox.CodeConflict, Field: "state", Message: "process 1 uses the state directory", Hint: "end it"}
	if o := serveWith(t, nil, broken, "serve", "--state", dir); o.status != exitPinfold || !strings.Contains(o.stderr, "hint: end it") {
		t.Errorf("%+v", o)
	}
}

func TestServeCheck(t *testing.T) {
	well := []serve.Finding{{What: "state", OK: true, Detail: "whole"}}
	if o := serveWith(t, well, nil, "serve", "--check"); o.status != 0 || !strings.Contains(o.stdout, "ok") || o.served != nil {
		t.Errorf("%+v", o)
	}
	bad := append(slices.Clone(well), serve.Finding{What: "host: x\x1b", Detail: "no", Fix: "do this"})
	o := serveWith(t, bad, nil, "serve", "--check")
	if o.status != 1 || !strings.Contains(o.stdout, "NOT OK") || !strings.Contains(o.stdout, "fix: do this") || strings.Contains(o.stdout, "\x1b") {
		t.Errorf("%+v", o)
	}
	o = serveWith(t, bad, nil, "serve", "--check", "--json")
	var got struct {
		OK       bool            `json:"ok"`
		Findings []serve.Finding `json:"findings"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got.OK || len(got.Findings) != 2 || o.status != 1 {
		t.Errorf("%v: %+v", err, o)
	}
}

// TestServeCheckOfABrokenFile: an error in the file was once no finding, and had
// another exit status and another form.
func TestServeCheckOfABrokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte("log:\n  levle: info\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := serveWith(t, nil, nil, "serve", "--config", file, "--check")
	if o.status != 1 || !strings.HasPrefix(o.stdout, "NOT OK  configuration: log.levle") || !strings.Contains(o.stdout, `fix: did you mean "level"?`) || o.stderr != "" {
		t.Errorf("%+v", o)
	}
	o = serveWith(t, nil, nil, "serve", "--config", file, "--check", "--json")
	if o.status != 1 || !strings.HasPrefix(o.stdout, `{"ok":false,"findings":[{"what":"configuration","ok":false,"detail":"log.levle`) || o.stderr != "" {
		t.Errorf("%+v", o)
	}
	if o = serveWith(t, nil, nil, "serve", "--check"); o.status != 0 {
		t.Errorf("%+v", o)
	}
}

func TestServeExample(t *testing.T) {
	if o := serveWith(t, nil, nil, "serve", "--example"); o.status != 0 || o.stdout != config.Example() {
		t.Errorf("%+v", o)
	}
}

func TestServeInJSONSaysNothingElse(t *testing.T) {
	if o := serveWith(t, nil, nil, "serve", "--log-format", "json"); o.options.Say != nil || o.stderr != "" {
		t.Errorf("%+v", o)
	}
}
