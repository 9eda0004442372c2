//go:build linux

// Package smallimage makes a template of this host's Python and shell, and nothing else of
// it: an image that needs no registry.
package smallimage

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"pinfold/internal/template"
)

// script writes the image's root to stdout. What the interpreters are linked to lies where
// the loader looks for it.
const script = `set -e
files=$(for f in /usr/bin/python3 /bin/sh /usr/lib/python3*/lib-dynload/*.so; do ldd "$f"; done | grep -o '/[^ ]*' | sort -u)
printf '%s\n' "$1" > said
exec tar chf - --transform 's,^said$,etc/said,' said /usr/bin/python3 /bin/sh $(ls -d /usr/lib/python3.*[0-9]) $files`

// tools is script for a base on which templates are built: with pip, npm, and what an
// installer and a shell script need.
const tools = `set -e
programs="/usr/bin/python3 /bin/sh $(for p in env tar mkdir rm ln mv cp cat ls date chmod touch sleep head dpkg-deb node gzip xz; do command -v $p; done)"
files=$(for f in $programs /usr/lib/python3*/lib-dynload/*.so; do ldd "$f" 2>/dev/null || true; done | grep -o '/[^ ]*' | sort -u)
npm=$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")
printf '%s\n' "$1" > said
mkdir -p usr/bin usr/local/share opt
printf '#!/bin/sh\nexec node %s/bin/npm-cli.js "$@"\n' "$npm" > usr/bin/npm
chmod 755 usr/bin/npm
echo old > usr/local/share/old
echo kept > usr/local/share/kept
exec tar chf - --transform 's,^said$,etc/said,' said usr opt $programs $(ls -d /usr/lib/python3.*[0-9]) /usr/lib/python3/dist-packages/pip "$npm" $files`

// Import makes the template of that name in the directory of images, which is made if it
// is not there. Its /etc/said says what is said.
func Import(t *testing.T, dir, name, said string) {
	t.Helper()
	importOf(t, script, dir, name, said)
}

// Tools makes a template that has, besides, what building one on top of it needs.
func Tools(t *testing.T, dir, name string) {
	t.Helper()
	importOf(t, tools, dir, name, "tools")
}

func importOf(t *testing.T, script, dir, name, said string) {
	t.Helper()
	s, err := template.Open(dir, template.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	file := packed(t, script, said)
	defer file.Close() //nolint:errcheck // only for this test
	if _, err := s.Import(t.Context(), file, template.Import{Name: name, Format: template.Root}); err != nil {
		t.Fatal(err)
	}
}

// packed is the image's root in a file, from its beginning.
func packed(t *testing.T, script, said string) *os.File {
	t.Helper()
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", script, "sh", said)
	c.Dir = t.TempDir()
	file, err := os.Create(filepath.Join(c.Dir, "root.tar"))
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout = file
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	return file
}
