//go:build linux

package attacks

import (
	"fmt"
	"strings"

	"pinfold/sandbox"
)

// marked is a module with something to change in the memory of a zygote.
const marked = "mark = b'untouched ' * 1000"

// imageCode changes the mark for itself, in its own memory, and tries to change it
// where that memory comes from.
const imageCode = `
import ctypes, os, treasure
libc = ctypes.CDLL(None, use_errno=True)
at, size = id(treasure.mark), len(treasure.mark)
page = at & -4096
line, = [l for l in open("/proc/self/maps") if int(l.split("-")[0], 16) <= at < int(l.split("-")[1].split()[0], 16)]
where, offset = line.split()[0], int(line.split()[2], 16) + at - int(line.split("-")[0], 16)
say("image", "yes" if "memfd" in line else "no")
def attempt(what, do):
    try:
        do()
        say(what, "yes")
    except OSError as e:
        say(what, "no")
def check(got):
    if got in (-1, ctypes.c_void_p(-1).value): raise OSError(ctypes.get_errno(), "")
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
def through(path):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"taken", offset + 40)
attempt("map_files", lambda: through("/proc/self/map_files/" + where))
def descriptors():
    for fd in os.listdir("/proc/self/fd"):
        if "memfd" in os.readlink("/proc/self/fd/" + fd):
            return os.pwrite(int(fd), b"taken", offset + 40)
    raise OSError(2, "")
attempt("descriptor", descriptors)
attempt("remove", lambda: check(libc.madvise(ctypes.c_void_p(page + 4096), ctypes.c_size_t(4096), 9)))
attempt("duplicate", lambda: check(libc.mremap(ctypes.c_void_p(page), ctypes.c_size_t(0), ctypes.c_size_t(4096), 1)))
attempt("remap", lambda: check(libc.remap_file_pages(ctypes.c_void_p(page), ctypes.c_size_t(4096), 0, ctypes.c_size_t(0), 0)))
attempt("share", lambda: check(libc.syscall(ctypes.c_long(216), ctypes.c_void_p(page), ctypes.c_long(4096), 0, ctypes.c_long(0), 0)))
for offset in 40, 4100:  # in its own copy
    ctypes.memmove(at + offset, b"taken", 5)
say("own", "yes" if treasure.mark.count(b"taken") == 2 else "no")
`

// imageCase is about the file from which a zygote's and its forks' memory comes.
func imageCase() Case {
	const attacks = "map_files descriptor remove duplicate remap share"
	try := func(a *arena, edits ...edit) (out, mark string, err error) {
		f, err := a.raise(marked, sandbox.Limits{}, edits...)
		if err != nil {
			return "", "", err
		}
		if out, err = f.tell(imageCode); err != nil {
			return "", "", err
		}
		mark, err = f.tell("import treasure; say('mark', treasure.mark.count(b'untouched '))")
		values := doorValues(out)
		if err == nil && (values["image"] != "yes" || values["own"] != "yes") {
			err = fmt.Errorf("the memory is no image, or the fork could not change its own: %q", out)
		}
		return out, mark, err
	}
	return Case{
		ID: "WS-07", Title: "changing the file that a fork's memory is a private copy of, and its siblings' too", Level: User, Severity: Lateral, Source: "own",
		Root: true, Expect: "only the fork's own copy changes", Doors: doors("no", attacks),
		Do: func(t *trial) error {
			out, mark, err := try(t.arena)
			t.result = &sandbox.Result{Stdout: out}
			if err == nil && !strings.Contains(mark, "1000") {
				err = fmt.Errorf("a sibling has %q", mark)
			}
			return err
		},
		Control: Control{Without: "seals, and closing it", Run: func(a *arena) error {
			_, mark, err := try(a,
				edit{"pinfold_image.py", `self.attempt("seal memory", "fcntl", fd, F_ADD_SEALS, ALL_SEALS)`, "pass"},
				edit{"pinfold_image.py", `self.attempt("close", "close", fd)`, "pass"},
				edit{"pinfold_loop.py", `call("close the rest", "close_range", 3, 0xFFFFFFFF, 0)`, "pass"})
			if err == nil && strings.Contains(mark, "1000") {
				err = fmt.Errorf("nothing was changed: %q", mark)
			}
			return err
		}},
	}
}
