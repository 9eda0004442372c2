//go:build linux

package drivers

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// cut is a connection that breaks once so many bytes have passed, either way.
type cut struct {
	net.Conn
	left *atomic.Int64 // of all connections
}

func (c *cut) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return c.pass(n, err)
}

// Write may have been taken by the other end although it fails.
func (c *cut) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return c.pass(n, err)
}

func (c *cut) pass(n int, err error) (int, error) {
	before := c.left.Load()
	if after := c.left.Add(-int64(n)); before > 0 && after <= 0 {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// patterned is content in which no two places look alike.
func patterned(size int) []byte {
	b := make([]byte, 0, size)
	for i := 0; len(b) < size; i++ {
		sum := sha256.Sum256(fmt.Append(nil, i))
		b = append(b, sum[:]...)
	}
	return b[:size]
}

// The connection to the agent may break at any moment of a run, of a process whose
// output is read, of an upload and of a download: nothing is lost, doubled or changed.
func TestCutConnections(t *testing.T) {
	h := newHost(t)
	var left atomic.Int64
	var connections atomic.Int64
	d := h.plain(func(conn net.Conn) io.ReadWriteCloser {
		connections.Add(1)
		return &cut{conn, &left}
	})
	e := newEngine(nil, d)
	defer closed(t, e)
	upload := patterned(1 << 20)
	const lines = 20_000
	var printed bytes.Buffer
	for i := range lines {
		fmt.Fprintln(&printed, i)
	}
	const script = "i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); done"
	for i := range 20 {
		at := int64(40 + i*i*1_900) // from the first message to the last of the 709 kB that a run moves at least
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			for _, work := range []struct {
				name string
				do   func() error
			}{
				{"run", func() error {
					var got []byte
					r, err := e.Run(soon(t), runs.Request{
						Spec: sandbox.Spec{
							Language: "sh", Code: "cat in >out; " + fmt.Sprintf(script, lines), Files: []sandbox.File{{Path: "in", ContentBase64: base64.StdEncoding.EncodeToString(upload[:300_000])}},
							Artifacts: []string{"out"}, Limits: sandbox.Limits{OutputBytes: 1 << 20},
						},
						Artifact: func(_ sandbox.Artifact, content io.Reader) (err error) { got, err = io.ReadAll(content); return err },
					})
					switch {
					case err != nil:
						return err
					case r.Status != sandbox.StatusSucceeded || r.Stdout != printed.String():
						return fmt.Errorf("%s, %d bytes printed: %+v", r.Status, len(r.Stdout), r.Cause)
					case !bytes.Equal(got, upload[:300_000]):
						return fmt.Errorf("%d bytes came out", len(got))
					}
					return nil
				}},
				{"living", func() error {
					sb, err := e.Create(soon(t), "alice", sandbox.Create{})
					if err != nil {
						return err
					}
					defer func() { _, _ = sb.Destroy(soon(t)) }()
					if err := sb.WriteFile(soon(t), "up", 0o600, int64(len(upload)), bytes.NewReader(upload)); err != nil {
						return fmt.Errorf("upload: %w", err)
					}
					p, stdout, _, err := sb.StartAttached(soon(t), sandbox.Command{Shell: fmt.Sprintf(script, lines)})
					if err != nil {
						return err
					}
					var got bytes.Buffer
					for {
						chunk, _, err := stdout.Next(soon(t))
						if len(chunk) == 0 || err != nil {
							break
						}
						got.Write(chunk)
					}
					if end, err := p.Wait(soon(t)); err != nil || got.String() != printed.String() {
						return fmt.Errorf("stream: %d bytes, %+v, %w", got.Len(), end, err)
					}
					got.Reset()
					if _, err := sb.ReadFile(soon(t), "up", 0, -1, &got); err != nil || !bytes.Equal(got.Bytes(), upload) {
						return fmt.Errorf("download: %d bytes, %w", got.Len(), err)
					}
					return nil
				}},
			} {
				connections.Store(0)
				left.Store(at)
				if err := work.do(); err != nil {
					t.Errorf("%s: %v", work.name, err)
				}
				if n := connections.Load(); n < 2 {
					t.Errorf("control: %s: %d connections", work.name, n)
				}
			}
		})
	}
}
