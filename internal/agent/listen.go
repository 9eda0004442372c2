//go:build linux

package agent

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"pinfold/internal/wire/resume"

	"golang.org/x/sys/unix"
)

// Listen is the agent's argument in a machine whose host may come back: the descriptor
// to the host is a socket that listens, and the next one holds the secret (package
// resume) and nothing else.
const Listen = "listen"

// Serve serves the hosts that connect to a listening stream socket, the latest one at
// any time, for ever. What one had started ends before the next is served.
func Serve(fd, secretFD int, build string, o Options) error {
	secret, err := readSecret(secretFD)
	if err != nil {
		return err
	}
	return serveHosts(fd, secret, build, o)
}

func serveHosts(fd int, secret resume.Secret, build string, o Options) error {
	p, listener, err := begin(fd, build, o)
	if err != nil {
		return err
	}
	p.reap.begin() // before a host comes, as process 1 of a machine
	server := resume.NewServer(secret)
	go accept(listener, server)
	for {
		host := server.Next()
		a := p.serving(host)
		_ = a.serve() // why it ended is the host's to know
		_ = host.Close()
		a.end()
	}
}

func readSecret(fd int) (secret resume.Secret, err error) {
	f := os.NewFile(uintptr(fd), "secret")
	defer f.Close() //nolint:errcheck // read
	if _, err := io.ReadFull(f, secret[:]); err != nil {
		return secret, errors.New("no secret: " + err.Error())
	}
	return secret, nil
}

// acceptPause follows a connection that could not be taken.
const acceptPause = 10 * time.Millisecond

// accept takes the connections that are made. It waits in the runtime's poller and
// takes each with a raw system call, as all input does here.
func accept(listener *pollFile, server *resume.Server) {
	for {
		fd, errno := -1, syscall.Errno(0)
		err := listener.raw.Read(func(l uintptr) bool {
			fd, errno = sysAccept(l)
			return errno != unix.EAGAIN
		})
		if err != nil {
			return
		}
		if errno != 0 { // of a connection that is gone again; or there are too many
			time.Sleep(acceptPause)
			continue
		}
		conn, err := newPollFile(fd, "host")
		if err != nil {
			_ = sysClose(fd)
			continue
		}
		server.Accept(conn)
	}
}

// end gives up what a host that is gone had asked for, and ends what it had started.
func (a *agent) end() {
	a.mu.Lock()
	channels := slices.Collect(maps.Values(a.channels))
	a.mu.Unlock()
	for _, c := range channels {
		c.abandon()
	}
	a.watch.close()
	a.reap.barrier() // whatever was about to start has, and is killed, or sees that it is abandoned
	a.reap.killAll(func() bool { return false })
}
