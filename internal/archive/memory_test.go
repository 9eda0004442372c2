package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/sandbox"
)

const home = sandbox.Home

// memory is a sandbox's files, with the rules of a real one.
type memory struct {
	unprintable int // files that a listing counts and does not name
	files       map[string]node
	calls       int
	fail        int // the call that fails; 0: none
	grown       map[string]int64
}

type node struct {
	kind    string
	mode    uint32
	content string
}

func newMemory() *memory {
	dir := node{kind: sandbox.FileDir, mode: 0o755}
	return &memory{files: map[string]node{path.Dir(home): dir, home: dir}}
}

func fault(code string) error { return &sandbox.Error{Code: code, Message: code} }

// call counts one call of the sink.
func (m *memory) call(ctx context.Context) error {
	m.calls++
	if m.calls == m.fail {
		return fault(sandbox.CodeTooLarge)
	}
	return ctx.Err()
}

func (m *memory) Stat(ctx context.Context, name string) (sandbox.FileInfo, error) {
	if err := m.call(ctx); err != nil {
		return sandbox.FileInfo{}, err
	}
	p := m.Absolute(name)
	if p == "/" {
		return sandbox.FileInfo{Path: p, Type: sandbox.FileDir}, nil
	}
	n, ok := m.files[p]
	if !ok {
		if up, there := m.files[path.Dir(p)]; there && up.kind != sandbox.FileDir {
			return sandbox.FileInfo{}, fault(sandbox.CodePathInvalid)
		}
		return sandbox.FileInfo{}, fault(sandbox.CodeFileNotFound)
	}
	return m.info(p, n), nil
}

func (m *memory) info(p string, n node) sandbox.FileInfo {
	return sandbox.FileInfo{Path: p, Type: n.kind, Mode: n.mode, Size: int64(len(n.content)), MTime: time.Unix(1.7e9, 0)}
}

// parents makes the directories above p.
func (m *memory) parents(p string) error {
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		if n, ok := m.files[dir]; ok {
			if n.kind != sandbox.FileDir {
				return fault(sandbox.CodePathInvalid)
			}
			continue
		}
		m.files[dir] = node{kind: sandbox.FileDir, mode: 0o755}
	}
	return nil
}

func (m *memory) Mkdir(ctx context.Context, name string, mode uint32) error {
	if err := m.call(ctx); err != nil {
		return err
	}
	p := m.Absolute(name)
	if n, ok := m.files[p]; ok {
		if n.kind != sandbox.FileDir {
			return fault(sandbox.CodePathInvalid)
		}
		return nil
	}
	m.files[p] = node{kind: sandbox.FileDir, mode: mode}
	return m.parents(p)
}

func (m *memory) WriteFile(ctx context.Context, name string, mode uint32, size int64, r io.Reader) error {
	if err := m.call(ctx); err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeInternal, "reading: %w", err)
	}
	p := m.Absolute(name)
	m.files[p] = node{kind: sandbox.FileRegular, mode: mode, content: string(b)}
	if err := m.parents(p); err != nil {
		return err
	}
	if size >= 0 && size != int64(len(b)) {
		return fault(sandbox.CodeSpecInvalid)
	}
	return nil
}

func (m *memory) Move(ctx context.Context, from, to string) error {
	if err := m.call(ctx); err != nil {
		return err
	}
	from, to = m.Absolute(from), m.Absolute(to)
	if n, ok := m.files[to]; ok && n.kind != sandbox.FileRegular {
		return fault(sandbox.CodeNotRegularFile)
	}
	n, ok := m.files[from]
	if !ok {
		return fault(sandbox.CodeFileNotFound)
	}
	delete(m.files, from)
	m.files[to] = n
	return m.parents(to)
}

func (m *memory) Remove(_ context.Context, name string) error {
	p, found := m.Absolute(name), false
	for other := range m.files {
		if other == p || strings.HasPrefix(other, p+"/") {
			delete(m.files, other)
			found = true
		}
	}
	if !found {
		return fault(sandbox.CodeFileNotFound)
	}
	return nil
}

func (m *memory) List(ctx context.Context, dir string, _, limit int) (sandbox.Listing[sandbox.FileInfo], error) {
	if err := m.call(ctx); err != nil {
		return sandbox.Listing[sandbox.FileInfo]{}, err
	}
	list := sandbox.Listing[sandbox.FileInfo]{Unprintable: m.unprintable}
	for _, p := range slices.Sorted(maps.Keys(m.files)) {
		if !strings.HasPrefix(p, m.Absolute(dir)+"/") {
			continue
		}
		i := m.info(p, m.files[p])
		i.Size += m.grown[p]
		list.Items = append(list.Items, i)
	}
	if len(list.Items) > limit {
		list.Items, list.More = list.Items[:limit], true
	}
	return list, nil
}

func (m *memory) ReadFile(_ context.Context, name string, offset, length int64, w io.Writer) (int64, error) {
	n, ok := m.files[name]
	if !ok || m.grown[name] == gone {
		return 0, fault(sandbox.CodeFileNotFound)
	}
	b := n.content[min(offset, int64(len(n.content))):]
	b = b[:min(length, int64(len(b)))]
	return io.Copy(w, strings.NewReader(b))
}

// gone in grown says that a file vanishes between its listing and its reading.
const gone = 1 << 20

// put makes a file.
func (m *memory) put(name, content string) {
	m.files[m.Absolute(name)] = node{kind: sandbox.FileRegular, mode: 0o644, content: content}
	_ = m.parents(m.Absolute(name))
}

func (m *memory) snapshot() map[string]node { return maps.Clone(m.files) }

func code(err error) string {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return "no *sandbox.Error"
	}
	return e.Code
}

func unpack(t testing.TB, m *memory, b []byte, f Format, l Limits) (Summary, error) {
	t.Helper()
	l.Dir = t.TempDir()
	return Unpack(t.Context(), bytes.NewReader(b), "in", f, l, m)
}

func (m *memory) Checked() bool { return false }

func (m *memory) Absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(home, name)
}
