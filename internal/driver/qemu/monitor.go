//go:build linux

package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/unixpair"
	"pinfold/sandbox"
)

// maxMonitorLine bounds what QEMU says at once.
const maxMonitorLine = 64 << 10

// monitorTimeout bounds one command that does not wait for anything.
const monitorTimeout = 10 * time.Second

// monitor is QEMU's own connection, by which a machine is stopped and let go on. It is
// safe for concurrent use. QEMU may be the enemy: a line that is none ends the connection.
type monitor struct {
	conn *unixpair.Channel

	mu    sync.Mutex // one command at a time
	in    *bufio.Reader
	ready bool
}

// message is what QEMU says.
type message struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class, Desc string
	} `json:"error"`
	Event string `json:"event"`
}

// command has QEMU do something.
func (m *monitor) command(ctx context.Context, name string, arguments any) (json.RawMessage, error) {
	return m.commandWith(ctx, name, arguments, nil)
}

// commandWith sends a file with it.
func (m *monitor) commandWith(ctx context.Context, name string, arguments any, file *os.File) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	deadline := time.Now().Add(monitorTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := m.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if !m.ready {
		m.in = bufio.NewReaderSize(m.conn, maxMonitorLine)
		if _, err := m.next(); err != nil { // the greeting
			return nil, err
		}
		if _, err := m.ask("qmp_capabilities", nil, nil); err != nil {
			return nil, err
		}
		m.ready = true
	}
	return m.ask(name, arguments, file)
}

// ask sends one command and waits for its answer, which comes after what QEMU has to tell.
func (m *monitor) ask(name string, arguments any, file *os.File) (json.RawMessage, error) {
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{name, arguments})
	if err != nil {
		return nil, err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if err := m.conn.Sendmsg(append(line, '\n'), rights); err != nil { // a command is short
		return nil, fmt.Errorf("QEMU's monitor: %w", err)
	}
	for {
		said, err := m.next()
		switch {
		case err != nil:
			return nil, err
		case said.Error != nil:
			return nil, fmt.Errorf("QEMU says to %s: %s", name, sandbox.SafeText(said.Error.Desc, 300))
		case said.Return != nil:
			return said.Return, nil
		}
	}
}

func (m *monitor) next() (said message, err error) {
	line, err := m.in.ReadSlice('\n')
	if err != nil {
		_ = m.conn.Close() // what comes later is the rest of this
		return said, fmt.Errorf("QEMU's monitor: %w", err)
	}
	if err := json.Unmarshal(line, &said); err != nil {
		_ = m.conn.Close()
		return said, errors.New("QEMU's monitor says what is no message")
	}
	return said, nil
}
