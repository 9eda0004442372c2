//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// warmViewCases are attacks of one fork on another through what both are shown, and
// through what they have from their zygote.
func warmViewCases() []Case {
	return []Case{{
		ID: "WS-08", Title: "watching and locking what a sibling opens, also the interpreter that both come from", Level: User, Severity: Lateral, Source: "own",
		Root: true, Expect: "no event of the sibling's; it can lock the same files",
		Do: func(t *trial) error {
			f, err := t.raise("", sandbox.Limits{})
			if err != nil {
				return err
			}
			return siblingsApart(func(code string, during func() error) (string, error) {
				r, err := f.fork(code)
				if err != nil {
					return "", err
				}
				out := ""
				for !strings.HasSuffix(out, "ready 1\n") && err == nil {
					var line string
					line, err = r.line()
					out += line + "\n"
				}
				if err == nil {
					err = during()
				}
				rest, restErr := r.rest()
				return out + rest, errors.Join(err, restErr, r.end())
			}, f.tell)
		},
		Control: Control{Without: "layers of the sandbox's own", Run: func(a *arena) error {
			run := func(code string, during func() error) (string, error) { return a.outsideWhile(during)(code) }
			err := siblingsApart(run, func(code string) (string, error) { return run(code+ready, nil) })
			if !errors.Is(err, errHit) {
				return fmt.Errorf("two processes of the host notice nothing: %w", err)
			}
			return nil
		}},
	}}
}

// siblingsApart has one program lock and watch, and another one open and lock.
func siblingsApart(first func(code string, during func() error) (string, error), second func(code string) (string, error)) error {
	dirs, files, err := shown()
	if err != nil {
		return err
	}
	paths := slices.Concat(dirs, files, []string{"/proc/self/exe"})
	arguments := fmt.Sprintf("sys.argv = ['x'] + '%s'.split()\n", strings.Join(paths, " "))
	var seen error
	out, err := first(arguments+heldCode+watchCode, func() error {
		out, err := second(arguments + openingCode)
		values := doorValues(out)
		for _, p := range paths {
			if v := values[p]; v != "ok" && v != "EACCES" {
				seen = errors.Join(seen, fmt.Errorf("a sibling finds %s %q: %w", p, v, errHit))
			}
		}
		return err
	})
	values := doorValues(out)
	for _, p := range paths {
		if v := values[p]; v != "0" && v != "unwatched" {
			seen = errors.Join(seen, fmt.Errorf("%s: %q events of a sibling's: %w", p, v, errHit))
		}
	}
	return errors.Join(err, seen)
}

const heldCode = `
import fcntl
held = []
for p in sys.argv[1:]:
    try: held.append(os.open(p, os.O_RDONLY)); fcntl.flock(held[-1], fcntl.LOCK_EX)
    except OSError: pass
`

const openingCode = `
import fcntl
for p in sys.argv[1:]:
    def use():
        fd = os.open(p, os.O_RDONLY)
        if os.path.isdir(p): os.listdir(p)
        else: os.read(fd, 10)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    attempt(p, use)
`
