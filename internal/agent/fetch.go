//go:build linux

package agent

import (
	"errors"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire/resume"
)

// Fetch is the agent's argument, before a path, where nobody can hand it descriptors: at
// the path is a socket of the host's, from which it fetches, once and before any guest
// code runs, its listener (as for Listen), the secret, and the filter of system calls
// that holds for it and all that it starts.
//
// The host sends one stream: the secret, with the listener beside its first byte, and
// then the filter's program. It has to end before the agent acts on it. The agent answers
// with FetchDone when the filter is in force.
const Fetch = "fetch"

// FetchDone is the agent's answer.
const FetchDone = 'k'

// maxFilter bounds the filter's program: BPF_MAXINSNS instructions.
const maxFilter = 4096 * filterInstruction

// filterInstruction is the size of the kernel's struct sock_filter.
const filterInstruction = 8

// ServeFetched fetches what Fetch says from a path, and serves as Serve does.
func ServeFetched(path, build string, o Options) error {
	oneThread()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil { // it is told a secret
		return err
	}
	listener, secret, err := fetch(path)
	if err != nil {
		return errors.New("fetch from the host: " + err.Error())
	}
	return serveHosts(listener, secret, build, o)
}

func fetch(path string) (listener int, secret resume.Secret, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, secret, err
	}
	defer sysClose(fd) //nolint:errcheck // the answer was sent
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return -1, secret, err
	}
	listener, said, err := receive(fd)
	if err != nil {
		return -1, secret, err
	}
	program := said[min(len(said), len(secret)):]
	switch {
	case copy(secret[:], said) < len(secret) || len(program) > maxFilter || len(program)%filterInstruction != 0:
		return -1, secret, errors.New("that is no secret and a filter")
	case len(program) > 0:
		if err := installFilter(program); err != nil {
			return -1, secret, errors.New("install the filter of system calls: " + err.Error())
		}
	}
	if _, errno := rawIO(unix.SYS_WRITE, uintptr(fd), []byte{FetchDone}); errno != 0 {
		return -1, secret, errno
	}
	return listener, secret, nil
}

// receive reads what the host says, to its end, and the descriptor that is beside it.
func receive(fd int) (listener int, said []byte, err error) {
	if err := sysWait(fd); err != nil {
		return -1, nil, err
	}
	said, control := make([]byte, resume.SecretSize+maxFilter+1), make([]byte, unix.CmsgSpace(4))
	n, controlLen, _, _, err := unix.Recvmsg(fd, said, control, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return -1, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlLen])
	if err != nil || len(messages) != 1 {
		return -1, nil, errors.New("no listener")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, nil, errors.New("no listener")
	}
	for n < len(said) {
		more, errno := rawIO(unix.SYS_READ, uintptr(fd), said[n:])
		if errno != 0 {
			return -1, nil, errno
		}
		if more == 0 {
			break
		}
		n += more
	}
	return fds[0], said[:n], nil
}
