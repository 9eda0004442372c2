//go:build linux

package agent

import (
	"errors"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// remove deletes a path and everything below it.
func (a *agent) remove(c *channel, req wire.Request) wire.Outcome {
	parent, base, err := a.openParent(req.File.Path, false)
	if err != nil {
		return failed(a.fileFault(err))
	}
	defer sysClose(parent) //nolint:errcheck // a directory
	err = unlink(parent, base)
	if errors.Is(err, unix.ENOTEMPTY) {
		r := &remover{a: a, buf: make([]byte, 8<<10), stop: c.abandoned}
		err = r.tree(parent, base)
	}
	if err != nil {
		return failed(a.fileFault(err))
	}
	return wire.Outcome{}
}

// unlink deletes a file or an empty directory. It never follows a link.
func unlink(dir int, name string) error {
	err := sysUnlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = sysUnlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	return err
}

// remover deletes a tree with one open directory and no recursion, so that
// the depth of what a guest made costs neither descriptors nor stack. It goes
// back up by "..", and checks that it came back to where it was.
type remover struct {
	a    *agent
	buf  []byte
	stop func() bool
	path []level
}

// level is a directory on the way down.
type level struct {
	name     string // in its parent
	dev, ino uint64 // of the parent
}

func (r *remover) tree(parent int, name string) error {
	cur, err := sysOpenat(parent, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = sysClose(cur) }()
	if cur, err = r.down(cur, name); err != nil {
		return err
	}
	for len(r.path) > 0 {
		if r.stop() {
			return unix.ECANCELED
		}
		full, err := r.empty(cur)
		if err != nil {
			return err
		}
		if full != "" {
			cur, err = r.down(cur, full)
		} else {
			cur, err = r.up(cur)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// empty deletes what it can in a directory and returns the name of a directory
// that is not empty, if there is one.
func (r *remover) empty(cur int) (full string, err error) {
	if err := sysRewind(cur); err != nil {
		return "", err
	}
	for {
		list, err := readEntries(cur, r.buf)
		if err != nil || len(list) == 0 {
			return full, err
		}
		for _, e := range list {
			err := unlink(cur, e.name)
			switch {
			case errors.Is(err, unix.ENOTEMPTY):
				full = e.name
			case err != nil && !errors.Is(err, unix.ENOENT):
				return "", err
			}
		}
	}
}

// down goes into a directory and closes the one it came from. On an error the
// result is the directory that is still open.
func (r *remover) down(cur int, name string) (int, error) {
	var st unix.Stat_t
	if err := sysFstat(cur, &st); err != nil {
		return cur, err
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	next, err := sysOpenat(cur, name, flags, 0)
	if errors.Is(err, unix.EACCES) && !r.a.hello.SwitchUser {
		// The guest has closed its own directory to itself. A link in its
		// place would lead to what the guest may change anyway.
		_ = sysFchmodat(cur, name, 0o700)
		next, err = sysOpenat(cur, name, flags, 0)
	}
	if err != nil {
		return cur, err
	}
	if !r.a.hello.SwitchUser {
		_ = sysFchmod(next, 0o700)
	}
	_ = sysClose(cur)
	r.path = append(r.path, level{name, st.Dev, st.Ino})
	return next, nil
}

// up goes back to the parent and deletes the directory it came from, which is
// empty unless the guest has filled it again.
func (r *remover) up(cur int) (int, error) {
	last := r.path[len(r.path)-1]
	parent, err := sysOpenat(cur, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return cur, err
	}
	_ = sysClose(cur)
	var st unix.Stat_t
	if err := sysFstat(parent, &st); err != nil {
		return parent, err
	}
	if st.Dev != last.dev || st.Ino != last.ino {
		return parent, unix.EBUSY // somebody moves things about
	}
	r.path = r.path[:len(r.path)-1]
	err = sysUnlinkat(parent, last.name, unix.AT_REMOVEDIR)
	if len(r.path) > 0 && errors.Is(err, unix.ENOTEMPTY) {
		return parent, nil // the next look at the parent finds it again
	}
	return parent, err
}
