//go:build linux

package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Self is what a process sees of itself.
type Self struct {
	Env        []string
	FDs        []int
	UID, GID   int
	Groups     []int
	Status     map[string]string // of /proc/self/status
	Securebits int
	Dir        string
	Hostname   string
	Interfaces []string
	PID        int
	PIDs       []string // that /proc shows
	Leader     bool     // of its session
	UIDMap     string
	Namespaces map[string]string
}

func self() Self {
	s := Self{FDs: descriptors(), Env: os.Environ(), UID: os.Getuid(), GID: os.Getgid(), PID: os.Getpid()}
	s.Groups, _ = os.Getgroups()
	s.Dir, _ = os.Getwd()
	s.Hostname, _ = os.Hostname()
	s.Status = map[string]string{}
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(line, ":")
		s.Status[k] = strings.TrimSpace(v)
	}
	s.Securebits, _ = unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		s.Interfaces = append(s.Interfaces, i.Name)
	}
	if len(interfaces) == 0 { // where netlink is forbidden
		s.Interfaces = interfacesByIndex()
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			s.PIDs = append(s.PIDs, e.Name())
		}
	}
	sid, _ := unix.Getsid(0)
	s.Leader = sid == os.Getpid()
	uidMap, _ := os.ReadFile("/proc/self/uid_map")
	s.UIDMap = strings.Join(strings.Fields(string(uidMap)), " ")
	s.Namespaces = map[string]string{}
	links, _ := filepath.Glob("/proc/self/ns/*")
	for _, l := range links {
		s.Namespaces[filepath.Base(l)], _ = os.Readlink(l)
	}
	return s
}

// descriptors asks for each number, so that looking opens nothing.
func descriptors() []int {
	var open []int
	for fd := range 1024 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open = append(open, fd)
		}
	}
	return open
}

// interfacesByIndex asks for the name of each of the first interfaces.
func interfacesByIndex() []string {
	var found []string
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return []string{"no socket: " + errno(err)}
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was sent
	for i := range 256 {
		if name, err := ifName(fd, i); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// errno says how a try ended: "ok", or the error's name in C.
func errno(err error) string {
	var e unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &e):
		return unix.ErrnoName(e)
	}
	return err.Error()
}

// open tries to read each path.
func open(paths []string) any {
	found := map[string]string{}
	for _, p := range paths {
		f, err := os.Open(p)
		if err == nil {
			_ = f.Close()
		}
		found[p] = errno(err)
	}
	return found
}

// create tries to make a file in each directory.
func create(dirs []string) any {
	found := map[string]string{}
	for _, d := range dirs {
		f, err := os.Create(filepath.Join(d, "pinfold-try"))
		if err == nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
		found[d] = errno(err)
	}
	return found
}

// list names what is in each directory.
func list(dirs []string) any {
	found := map[string][]string{}
	for _, d := range dirs {
		entries, err := os.ReadDir(d)
		if err != nil {
			found[d] = []string{"error " + errno(err)}
			continue
		}
		for _, e := range entries {
			found[d] = append(found[d], e.Name())
		}
	}
	return found
}

// dial tries pairs of a network and an address.
func dial(args []string) any {
	found := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		conn, err := net.DialTimeout(args[i], args[i+1], 2*time.Second)
		if err == nil {
			_ = conn.Close()
		}
		found[args[i+1]] = errno(err)
	}
	return found
}

// listen waits for connections at a unix address until stdin ends.
func listen(args []string) any {
	l, err := net.Listen("unix", args[0])
	if err != nil {
		return errno(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	say("listening")
	hold()
	return errno(l.Close())
}

// threads makes sure that there is more than one thread and says how each
// one's status differs from the first one's.
func threads([]string) any {
	done := make(chan bool)
	for range 4 {
		go func() { runtime.LockOSThread(); <-done }()
	}
	time.Sleep(20 * time.Millisecond)
	defer close(done)
	read := func(dir string) map[string]string {
		found := map[string]string{}
		text, _ := os.ReadFile(dir + "/status")
		for line := range strings.Lines(string(text)) {
			k, v, _ := strings.Cut(line, ":")
			found[k] = strings.TrimSpace(v)
		}
		return found
	}
	var all []map[string]string
	tasks, _ := filepath.Glob("/proc/self/task/*")
	for _, t := range tasks {
		all = append(all, read(t))
	}
	return all
}

// walk lists every file below each directory.
func walk(dirs []string) any {
	var found []string
	for _, d := range dirs {
		_ = filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				found = append(found, path+" "+errno(err))
			case !e.IsDir():
				found = append(found, path)
			}
			return nil
		})
	}
	return found
}

// read returns what each file holds.
func read(paths []string) any {
	found := map[string]string{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		found[p] = string(b)
		if err != nil {
			found[p] = "error " + errno(err)
		}
	}
	return found
}

// write tries to open each file for writing, and to change whose and how it is.
func write(paths []string) any {
	found := map[string]string{}
	for _, p := range paths {
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err == nil {
			_ = f.Close()
		}
		for _, try := range []error{err, os.Chmod(p, 0o666), os.Truncate(p, 0), os.Remove(p), os.Rename(p, p+"x")} {
			if try == nil {
				err = nil
			}
		}
		found[p] = errno(err)
	}
	return found
}
