//go:build linux

package smallimage

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/template"
)

// Configured makes a template as Import does, with what its configuration says, and with
// files by their names over the others, in a layer of their own. Those of /opt/bin are
// programs.
func Configured(t *testing.T, dir, name, said string, c template.Config, files map[string]string) {
	t.Helper()
	s, err := template.Open(dir, template.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	content := template.Content{}
	var ids []string
	for _, layer := range [][]byte{pack(t, said), packFiles(t, files)} {
		ids = append(ids, fmt.Sprintf("sha256:%x", sha256.Sum256(layer)))
		open := func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil }
		content.Layers = append(content.Layers, template.Blob{Size: int64(len(layer)), Open: open})
	}
	content.Config, err = json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": c.Env, "User": c.User, "WorkingDir": c.WorkingDir},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	if err == nil {
		_, err = s.Add(t.Context(), name, content, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func pack(t *testing.T, said string) []byte {
	t.Helper()
	f := packed(t, script, said)
	defer f.Close() //nolint:errcheck // only for this test
	all, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func packFiles(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		mode := int64(0o644)
		if strings.HasPrefix(name, "opt/bin/") {
			mode = 0o755
		}
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(files[name]))})
		if err == nil {
			_, err = io.WriteString(w, files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
