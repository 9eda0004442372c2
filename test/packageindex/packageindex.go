// Package packageindex serves packages to tests, as indexes do: Python's simple index, and
// the registry of npm. Some of them are hostile.
package packageindex

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// Index is one server with both protocols. Packages of Python's:
//
//   - greet 1.0 needs words 2.0, which says hello
//   - source 1.0 is a source distribution, whose setup.py would run
//   - lies 1.0 has another digest than its index says
//   - climbs 1.0 has a file that leaves the place where it is unpacked
//   - endless 1.0 does not end
//
// Of npm's: left 1.0.0 needs right 2.0.0 and has a script that would run; lies 1.0.0 has
// another digest than its index says.
type Index struct {
	*httptest.Server

	// Files counts the packages that were fetched.
	Files atomic.Int64

	python map[string]file // by name
	npm    map[string]module
}

type file struct {
	name    string
	content []byte
	said    string // the digest that the index says; empty: the right one
	endless bool
}

type module struct {
	version, needs string
	content        []byte
	lies           bool
}

// New serves until the test ends.
func New(t *testing.T) *Index {
	t.Helper()
	i := &Index{
		python: map[string]file{
			"greet":  wheel("greet", "1.0", "Requires-Dist: words==2.0\n", map[string]string{"greet/__init__.py": "import words\ndef hello(): return words.WORD\n"}),
			"words":  wheel("words", "2.0", "", map[string]string{"words/__init__.py": "WORD = 'hello from words'\n"}),
			"climbs": wheel("climbs", "1.0", "", map[string]string{"../../climbed.py": "x = 1\n", "climbs/__init__.py": ""}),
			"source": {name: "source-1.0.tar.gz", content: tarball(map[string]string{
				"source-1.0/setup.py":  "open('/tmp/ran', 'w')\nprint('SETUP RAN')\nfrom setuptools import setup\nsetup(name='source', version='1.0')\n",
				"source-1.0/PKG-INFO":  "Metadata-Version: 2.1\nName: source\nVersion: 1.0\n",
				"source-1.0/source.py": "",
			})},
			"endless": {name: "endless-1.0-py3-none-any.whl", endless: true},
		},
		npm: map[string]module{
			"left": {version: "1.0.0", needs: "right", content: tarball(map[string]string{
				"package/package.json": `{"name": "left", "version": "1.0.0", "main": "index.js", "dependencies": {"right": "2.0.0"}, "scripts": {"preinstall": "touch ran", "install": "touch ran", "postinstall": "touch ran"}}`,
				"package/index.js":     "module.exports = require('right') + ' from left'\n",
			})},
			"right": {version: "2.0.0", content: tarball(map[string]string{
				"package/package.json": `{"name": "right", "version": "2.0.0", "main": "index.js"}`, "package/index.js": "module.exports = 'hello'\n",
			})},
			"lies": {version: "1.0.0", lies: true, content: tarball(map[string]string{"package/package.json": `{"name": "lies", "version": "1.0.0"}`})},
		},
	}
	lies := wheel("lies", "1.0", "", map[string]string{"lies/__init__.py": ""})
	lies.said = strings.Repeat("00", 32)
	i.python["lies"] = lies
	mux := http.NewServeMux()
	mux.HandleFunc("GET /simple/{name}/", i.simple)
	mux.HandleFunc("GET /files/{file}", i.wheel)
	mux.HandleFunc("GET /npm/{name}", i.module)
	mux.HandleFunc("GET /npm/{name}/-/{file}", i.tarball)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		i.CloseClientConnections() // an endless one
		i.Close()
	})
	return i
}

// simple is a page of PEP 503.
func (i *Index) simple(w http.ResponseWriter, r *http.Request) {
	f, ok := i.python[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(f.content)
	digest := hex.EncodeToString(sum[:])
	if f.said != "" {
		digest = f.said
	}
	w.Header().Set("Content-Type", "text/html")
	_, _ = fmt.Fprintf(w, "<!DOCTYPE html><html><body><a href=\"../../files/%s#sha256=%s\">%s</a></body></html>", f.name, digest, f.name)
}

func (i *Index) wheel(w http.ResponseWriter, r *http.Request) {
	for _, f := range i.python {
		if f.name != r.PathValue("file") {
			continue
		}
		i.Files.Add(1)
		for f.endless {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
		_, _ = w.Write(f.content)
		return
	}
	http.NotFound(w, r)
}

// module is what npm calls a packument.
func (i *Index) module(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	m, ok := i.npm[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	content := m.content
	if m.lies {
		content = []byte("something else")
	}
	sum := sha512.Sum512(content)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	version := map[string]any{
		"name": name, "version": m.version, "hasInstallScript": true,
		"dist": map[string]string{
			"tarball": scheme + "://" + r.Host + "/npm/" + name + "/-/" + name + "-" + m.version + ".tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		},
	}
	if m.needs != "" {
		version["dependencies"] = map[string]string{m.needs: i.npm[m.needs].version}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"name": name, "dist-tags": map[string]string{"latest": m.version}, "versions": map[string]any{m.version: version},
	})
}

func (i *Index) tarball(w http.ResponseWriter, r *http.Request) {
	i.Files.Add(1)
	_, _ = w.Write(i.npm[r.PathValue("name")].content)
}

// wheel is a package of Python's as it is distributed.
func wheel(name, version, needs string, files map[string]string) file {
	info := name + "-" + version + ".dist-info/"
	files[info+"METADATA"] = "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n" + needs
	files[info+"WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
	var record strings.Builder
	for _, n := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256([]byte(files[n]))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", n, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[n]))
	}
	files[info+"RECORD"] = record.String() + info + "RECORD,,\n"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, n := range slices.Sorted(maps.Keys(files)) {
		if w, err := z.Create(n); err == nil { // into memory
			_, _ = w.Write([]byte(files[n]))
		}
	}
	_ = z.Close()
	return file{name: name + "-" + version + "-py3-none-any.whl", content: b.Bytes()}
}

// tarball is what npm, and Python's source distributions, come in.
func tarball(files map[string]string) []byte {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for _, n := range slices.Sorted(maps.Keys(files)) {
		_ = w.WriteHeader(&tar.Header{Name: n, Typeflag: tar.TypeReg, Size: int64(len(files[n])), Mode: 0o644}) // into memory
		_, _ = w.Write([]byte(files[n]))
	}
	_ = w.Close()
	_ = g.Close()
	return b.Bytes()
}
