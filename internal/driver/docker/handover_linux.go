package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// handover is a socket on which the agent asks for what it needs.
type handover struct {
	asked, hosts *net.UnixListener
}

// listen listens for the agent, and for the agent.
func (h *handover) listen(m *machine) (err error) {
	at := filepath.Join(m.dir, inDir, "host")
	if h.asked, err = net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"}); err != nil {
		return err
	}
	if err := os.Chmod(at, 0o666); err != nil { //nolint:gosec // the agent is no user of this host
		return err
	}
	if h.hosts, err = net.ListenUnix("unix", &net.UnixAddr{Name: m.socket(), Net: "unix"}); err == nil {
		h.hosts.SetUnlinkOnClose(false) // it goes on as the agent's
	}
	return err
}

func (h *handover) close() {
	for _, l := range []*net.UnixListener{h.asked, h.hosts} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// tell waits for the agent and tells it what it needs, and for its word that the filter is
// in force.
func (h *handover) tell(ctx context.Context, m *machine, filter []byte) error {
	deadline, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-deadline.Done():
		case <-m.dead:
		case <-over:
		}
		_ = h.asked.Close()
	}()
	conn, err := h.asked.AcceptUnix()
	if err != nil {
		return m.whyNot(ctx, err)
	}
	defer conn.Close() //nolint:errcheck // read to its end
	if end, ok := deadline.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	listener, err := h.hosts.File()
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // a copy
	if _, _, err := conn.WriteMsgUnix(m.Secret[:], unix.UnixRights(int(listener.Fd())), nil); err != nil {
		return m.whyNot(ctx, err)
	}
	if _, err = conn.Write(filter); err == nil {
		err = conn.CloseWrite()
	}
	answer := make([]byte, 1)
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err != nil || answer[0] != fetched {
		return m.whyNot(ctx, errors.Join(err, errors.New("the agent does not say that it is ready")))
	}
	return nil
}

// fetched is the agent's FetchDone.
const fetched = 'k'

// whyNot is err, or what was before it.
func (m *machine) whyNot(ctx context.Context, err error) error {
	select {
	case <-m.dead:
		return fmt.Errorf("%w: %s", err, m.death.Evidence)
	default:
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}
