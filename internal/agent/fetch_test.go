//go:build linux

package agent

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire/resume"
)

// The agent fetches a listener and a secret, and nothing that is not one. (That it puts a
// filter into force, tests of drivers see: it cannot be taken back.)
func TestFetch(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, resume.SecretSize)
	for what, c := range map[string]struct {
		said     []byte
		listener bool
		good     bool
	}{
		"a secret and a listener": {secret, true, true},
		"no listener":             {secret, false, false},
		"half a secret":           {secret[1:], true, false},
		"half an instruction":     {append(bytes.Clone(secret), 1, 2, 3), true, false},
		"too long a filter":       {append(bytes.Clone(secret), make([]byte, maxFilter+filterInstruction)...), true, false},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			answered := make(chan []byte, 1)
			go func() { answered <- answer(t, l, c.said, c.listener) }()
			fd, got, err := fetch(path)
			if (err == nil) != c.good {
				t.Fatalf("%d, %v", fd, err)
			}
			if answer := <-answered; c.good != (string(answer) == string(rune(FetchDone))) {
				t.Errorf("the agent answers %q", answer)
			}
			if !c.good {
				return
			}
			defer unix.Close(fd)
			if !bytes.Equal(got[:], secret) {
				t.Errorf("the secret is %x", got)
			}
			if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens != 1 {
				t.Errorf("it does not listen: %v", err)
			}
		})
	}
	if _, _, err := fetch(filepath.Join(t.TempDir(), "nobody")); err == nil {
		t.Error("it fetches from nobody")
	}
}

// answer says something to the agent and returns what it answers.
func answer(t *testing.T, l *net.UnixListener, said []byte, listener bool) []byte {
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Error(err)
		return nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	var rights []byte
	if listener {
		f, err := l.File()
		if err != nil {
			t.Error(err)
			return nil
		}
		defer f.Close()
		rights = unix.UnixRights(int(f.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix(said[:1], rights, nil); err != nil {
		t.Error(err)
	}
	_, _ = conn.Write(said[1:]) // it may have heard enough
	_ = conn.CloseWrite()
	out := make([]byte, 2)
	n, _ := conn.Read(out)
	return out[:n]
}
