//go:build linux

// Package userns gives a new user namespace its ids: a block of the host's, as
// root; a range of the user's subordinate ids, through newuidmap; or the user's
// own single id, which every kernel allows. See user_namespaces(7).
//
// It does not make namespaces; package spawn does.
package userns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
)

// Range is a run of ids of the host.
type Range struct{ First, Count int }

// nobody is the user and the group of that name everywhere, and what the kernel shows
// for an id that is not mapped.
const nobody = 65_534

// MapBlock gives the namespace of the process the host's ids from First on: as 0 to
// Count-2, and the last one as nobody. Count is at most nobody. Needs root.
func MapBlock(pid int, ids Range) error {
	last := ids.Count - 1
	lines := fmt.Sprintf("0 %d %d\n%d %d 1\n", ids.First, last, nobody, ids.First+last)
	return errors.Join(write(pid, "uid_map", lines), write(pid, "gid_map", lines))
}

// MapSelf gives the namespace of the process one user and one group id, which
// are our own outside. Needs no privilege; the process can have no other groups.
func MapSelf(pid, uid, gid int) error {
	if err := write(pid, "setgroups", "deny"); err != nil {
		return err
	}
	return errors.Join(
		write(pid, "uid_map", fmt.Sprintf("%d %d 1\n", uid, os.Getuid())),
		write(pid, "gid_map", fmt.Sprintf("%d %d 1\n", gid, os.Getgid())))
}

func write(pid int, file, content string) error {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// Subordinate is what an ordinary user needs to map more ids than its own.
type Subordinate struct {
	UIDs, GIDs           Range
	newUIDMap, newGIDMap string
}

// MinSubordinate is the smallest range that is of use: root and the user.
const MinSubordinate = 1001

// FindSubordinate looks for the current user's subordinate ids and for the
// programs that may map them. The error says what is missing.
func FindSubordinate() (*Subordinate, error) {
	uidMap, err := exec.LookPath("newuidmap")
	if err != nil {
		return nil, errors.New("newuidmap is not installed")
	}
	gidMap, err := exec.LookPath("newgidmap")
	if err != nil {
		return nil, errors.New("newgidmap is not installed")
	}
	names := []string{strconv.Itoa(os.Getuid())}
	if u, err := user.Current(); err == nil {
		names = append(names, u.Username)
	}
	s := &Subordinate{newUIDMap: uidMap, newGIDMap: gidMap}
	if s.UIDs, err = find("/etc/subuid", names); err != nil {
		return nil, err
	}
	if s.GIDs, err = find("/etc/subgid", names); err != nil {
		return nil, err
	}
	return s, nil
}

// Map gives the namespace of the process the subordinate ids, from 0 on.
func (s *Subordinate) Map(ctx context.Context, pid int) error {
	var wg sync.WaitGroup
	var errs [2]error
	for i, c := range []struct {
		program string
		ids     Range
	}{{s.newUIDMap, s.UIDs}, {s.newGIDMap, s.GIDs}} {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, c.program, strconv.Itoa(pid), "0", strconv.Itoa(c.ids.First), strconv.Itoa(c.ids.Count)) //nolint:gosec // the path is from our own PATH look-up
			if out, err := cmd.CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("%s: %w: %.200s", c.program, err, out)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// find returns the first range of at least MinSubordinate ids that the file
// gives one of the names, cut to 65,536.
func find(file string, names []string) (Range, error) {
	f, err := os.Open(file)
	if err != nil {
		return Range{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	r, ok := parse(io.LimitReader(f, 1<<20), names)
	if !ok {
		return Range{}, fmt.Errorf("%s gives %s no range of %d ids", file, names[len(names)-1], MinSubordinate)
	}
	return r, nil
}

// parse reads lines of name:first:count.
func parse(r io.Reader, names []string) (Range, bool) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(fields) != 3 {
			continue
		}
		first, err1 := strconv.Atoi(fields[1])
		count, err2 := strconv.Atoi(fields[2])
		if err1 != nil || err2 != nil || first <= 0 || count < MinSubordinate {
			continue
		}
		for _, n := range names {
			if fields[0] == n {
				return Range{First: first, Count: min(count, 65_536)}, true
			}
		}
	}
	return Range{}, false
}
