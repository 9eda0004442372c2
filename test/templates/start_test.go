//go:build linux

package templates

import (
	"strings"
	"testing"

	"pinfold"
	"pinfold/sandbox"
	"pinfold/test/smallimage"
)

const served = `
name: served
base: tools
files:
  - path: /opt/serve.py
    content: |
      import http.server, time
      time.sleep(0.3)
      http.server.HTTPServer(("127.0.0.1", 8000), http.server.SimpleHTTPRequestHandler).serve_forever()
env: {PORT: "8000"}
start: exec python3 /opt/serve.py
ready: python3 -c 'import os, socket; socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 1)'
`

// A sandbox of a template that starts a server has the server when it is given out; what
// does not start is the build's failure, with what it said, and nothing of it is kept.
func TestBuildStart(t *testing.T) {
	b := newBuilder(t)
	smallimage.Tools(t, b.images, "tools")
	got := b.must(served, pinfold.BuildOptions{})
	if again := b.must(served, pinfold.BuildOptions{Name: "again"}); again.Image != got.Image || !again.Cached {
		t.Errorf("%+v, and then %+v", got, again)
	}
	b.must("name: derived\nbase: served\nfiles: [{path: /opt/more, content: a}]", pinfold.BuildOptions{})
	for _, template := range []string{"served", "derived"} {
		x, err := b.local.Create(t.Context(), sandbox.Create{Template: template, Limits: sandbox.Limits{Processes: 16}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := x.Exec(t.Context(), sandbox.Command{Args: []string{"python3", "-c", "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000').status)"}}, pinfold.ExecOptions{})
		if err != nil || p.Stdout != "200\n" {
			t.Errorf("%s: %+v, %v", template, p, err)
		}
		if _, err := x.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := b.run("served", "python", "import socket\ntry: socket.create_connection(('127.0.0.1', 8000), 1)\nexcept OSError as e: print(e.strerror)"); got != "Connection refused\n" {
		t.Errorf("a run starts its program only, and says %q", got)
	}
	before := b.kept()
	for declaration, want := range map[string]string{
		"start: 'echo broken >&2; exit 3'\nready: 'false'":                               "exit status 3; the last that it printed:\nbroken",
		"start: sleep 60\nready: 'echo not there >&2; exit 7'\nlimits: {ready: 300ms}":   "within 300ms, the last time with exit status 7; the last that it printed:\nnot there",
		"start: no-such-program\nready: 'false'":                                         "exit status 127",
		"start: sleep 60\nready: sleep 60\nlimits: {ready: 300ms}":                       "within 300ms",
		"start: 'head -c 64M /dev/zero > /tmp/x'\nready: 'false'\nlimits: {disk: 32MiB}": "no free block",
	} {
		_, err := b.build("name: fails\nbase: tools\n"+declaration, pinfold.BuildOptions{})
		e := sandbox.AsError(err)
		if err == nil || e.Field != "start" || e.Code != sandbox.CodeBuildFailed || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %v", declaration, err)
		}
		if after := b.kept(); after != before {
			t.Errorf("%s: kept %s, before %s", declaration, after, before)
		}
	}
}
