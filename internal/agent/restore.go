//go:build linux

package agent

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"golang.org/x/sys/unix"
	"pinfold/internal/filetree"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// restore makes the files of a tree that comes on stream 0. Nothing else runs in here yet.
// It has one directory open, and the place in which that is: it comes back up by "..".
func (a *agent) restore(c *channel, req wire.Request) wire.Outcome {
	r := newRestorer(a, c, req.Restore.Places, &upload{c: c})
	err := r.all()
	r.close()
	var f *wire.Fault
	switch {
	case errors.As(err, &r.refused):
		f = r.refused.fault
	case c.abandoned():
		f = a.fileFault(unix.ECANCELED)
	case err != nil:
		f = a.fileFault(err)
	default:
		return wire.Outcome{Size: r.tree.So().Entries()}
	}
	if r.name != "" {
		f.Message = sandbox.SafeText(r.name, 200) + ": " + f.Message
	}
	return failed(f)
}

// upload reads stream 0.
type upload struct {
	c    *channel
	rest []byte
	lent bool
}

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) {
	if len(u.rest) == 0 {
		if u.lent {
			u.c.received()
		}
		u.rest = u.c.in.Next()
		if u.lent = u.rest != nil; !u.lent {
			return 0, io.EOF
		}
	}
	n := copy(b, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// restorer is one tree that is being made.
type restorer struct {
	a      *agent
	c      *channel
	tree   *filetree.Reader
	places []wire.RestorePlace
	secret uint64 // in the names of spare

	name    string // of the entry that is being made
	place   int    // descriptors, or -1
	cur     int
	depth   int             // of cur in the place; 0: no place
	skipped int             // levels that are passed over
	absent  string          // the place that is passed over since the sandbox has none such
	waiting map[uint64]bool // files with several names that have a name in the place for the next ones
	refused *refusal
}

// refusal is an error that is no system call's.
type refusal struct{ fault *wire.Fault }

// Error implements error.
func (r *refusal) Error() string { return r.fault.Message }

func newRestorer(a *agent, c *channel, places []wire.RestorePlace, tree io.Reader) *restorer {
	return &restorer{a: a, c: c, places: places, secret: rand.Uint64(), tree: filetree.NewReader(tree), place: -1, cur: -1, waiting: map[uint64]bool{}} //nolint:gosec // the kernel seeds it, and the agent needs nothing larger
}

func (r *restorer) close() {
	for _, fd := range []int{r.place, r.cur} {
		if fd >= 0 {
			_ = sysClose(fd)
		}
	}
}

func (r *restorer) all() error {
	for {
		e, err := r.tree.Next()
		if err != nil {
			return err
		}
		r.name = e.Name
		if r.skipped > 0 {
			if err := r.skip(e); err != nil {
				return err
			}
			continue
		}
		switch e.Kind {
		case filetree.End:
			return nil
		case filetree.Place:
			err = r.begin(e)
		case filetree.Dir:
			err = r.down(e)
		case filetree.Up:
			err = r.up(e)
		case filetree.File:
			err = r.file(e)
		case filetree.Link:
			err = r.link(e)
		case filetree.Symlink:
			err = r.symlink(e)
		}
		if err != nil {
			return err
		}
	}
}

// skip passes over an entry.
func (r *restorer) skip(e filetree.Entry) error {
	switch e.Kind {
	case filetree.Dir:
		r.skipped++
	case filetree.Up:
		r.skipped--
	case filetree.File:
		for {
			gap, piece, err := r.tree.Content()
			if err != nil || gap == 0 && piece == nil {
				return err
			}
		}
	}
	if r.absent != "" && e.Kind != filetree.Up {
		return &refusal{fault(sandbox.CodePathInvalid, "there is no "+sandbox.SafeText(r.absent, 80)+" in this sandbox to put it in")}
	}
	return nil
}

// begin goes into a place.
func (r *restorer) begin(e filetree.Entry) error {
	r.absent = e.Name
	for _, p := range r.places {
		if p.Name != e.Name {
			continue
		}
		rel, err := r.a.relative(p.Path)
		if err != nil {
			return err
		}
		if r.place, err = r.a.openAt(r.a.root, rel, unix.O_RDONLY|unix.O_DIRECTORY, 0, noLinks); err != nil {
			return err
		}
		if r.cur, err = sysDup(r.place); err != nil {
			return err
		}
		r.absent, r.depth = "", 1
		return nil
	}
	r.skipped = 1
	return nil
}

// down makes a directory and goes into it. One that is there already stays; where something
// is mounted, what the tree has is passed over: it is not the sandbox's own.
func (r *restorer) down(e filetree.Entry) error {
	made := sysMkdirat(r.cur, e.Name, 0o700)
	resolve := uint64(noLinks)
	if made != nil {
		if !errors.Is(made, unix.EEXIST) {
			return made
		}
		resolve |= unix.RESOLVE_NO_XDEV
	}
	fd, err := r.a.openAt(r.cur, e.Name, unix.O_RDONLY|unix.O_DIRECTORY, 0, resolve)
	if errors.Is(err, unix.EXDEV) {
		r.skipped = 1
		return nil
	}
	if err != nil {
		return err
	}
	_ = sysClose(r.cur)
	r.cur = fd
	r.depth++
	if made == nil {
		return r.give(fd)
	}
	return nil
}

// give makes what we have made the user's.
func (r *restorer) give(fd int) error {
	if !r.a.hello.SwitchUser {
		return nil
	}
	return sysFchown(fd, r.a.hello.UID, r.a.hello.GID)
}

// up completes a directory, or a place, and goes back to the one above it.
func (r *restorer) up(e filetree.Entry) error {
	if r.depth == 1 {
		return r.endPlace(e)
	}
	// There is no way up once it is closed to its owner.
	above, err := sysOpenat(r.cur, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = sysFchmod(r.cur, e.Mode&0o1777)
	if err == nil {
		err = sysFutimens(r.cur, e.MtimeNS)
	}
	if err != nil {
		_ = sysClose(above)
		return err
	}
	_ = sysClose(r.cur)
	r.cur = above
	r.depth--
	return nil
}

// endPlace completes a place. It is not always ours to change.
func (r *restorer) endPlace(e filetree.Entry) error {
	for number := range r.waiting { // their other names were elsewhere
		if err := sysUnlinkat(r.place, r.spare(number), 0); err != nil {
			return err
		}
	}
	clear(r.waiting)
	_ = sysFchmod(r.cur, e.Mode&0o1777)
	_ = sysFutimens(r.cur, e.MtimeNS)
	r.close()
	r.place, r.cur, r.depth = -1, -1, 0
	return nil
}

// file makes a regular file, in place of what has its name.
func (r *restorer) file(e filetree.Entry) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW
	fd, err := r.a.openAt(r.cur, e.Name, flags, 0o600, noLinks)
	if errors.Is(err, unix.EEXIST) {
		if err = sysUnlinkat(r.cur, e.Name, 0); err == nil {
			fd, err = r.a.openAt(r.cur, e.Name, flags, 0o600, noLinks)
		}
	}
	if err != nil {
		return err
	}
	defer sysClose(fd) //nolint:errcheck // written without buffering: errors have been seen
	if err := r.content(fd, e.Size); err != nil {
		return err
	}
	if err := r.a.own(fd, e.Mode); err != nil {
		return err
	}
	if err := sysFutimens(fd, e.MtimeNS); err != nil || e.Number == 0 {
		return err
	}
	r.waiting[e.Number] = true
	return sysLinkat(r.cur, e.Name, r.place, r.spare(e.Number))
}

// content writes what a file holds. What is not written is a hole.
func (r *restorer) content(fd int, size int64) error {
	at := int64(0)
	for {
		gap, piece, err := r.tree.Content()
		if err != nil {
			return err
		}
		if gap == 0 && piece == nil {
			break
		}
		for at += gap; len(piece) > 0; {
			n, err := sysPwrite(fd, piece, at)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
			piece, at = piece[max(n, 0):], at+int64(max(n, 0))
		}
	}
	return sysFtruncate(fd, size)
}

// spare is the name in the place by which a file with several names waits for the next. It
// costs no inode in the end: the last name is this one, moved. Nobody who made a tree knew it.
func (r *restorer) spare(number uint64) string {
	return ".pinfold-restore-" + strconv.FormatUint(r.secret, 36) + "-" + strconv.FormatUint(number, 10)
}

// link gives a file another name.
func (r *restorer) link(e filetree.Entry) error {
	if !r.waiting[e.Number] {
		return &refusal{fault(sandbox.CodeSpecInvalid, fmt.Sprintf("another name of the file %d, which is complete", e.Number))}
	}
	if !e.Last {
		return sysLinkat(r.place, r.spare(e.Number), r.cur, e.Name)
	}
	delete(r.waiting, e.Number)
	return renameat(r.place, r.spare(e.Number), r.cur, e.Name, false)
}

func (r *restorer) symlink(e filetree.Entry) error {
	if err := sysSymlinkat(e.Target, r.cur, e.Name); err != nil {
		return err
	}
	if r.a.hello.SwitchUser {
		if err := sysFchownat(r.cur, e.Name, r.a.hello.UID, r.a.hello.GID); err != nil {
			return err
		}
	}
	_ = sysUtimensLink(r.cur, e.Name, e.MtimeNS) // not everywhere may times be changed by a name
	return nil
}
