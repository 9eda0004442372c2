//go:build linux

package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/sandbox"
)

// setIDCalls are the ways to make a set-user-id file, and their names in setIDCode.
var setIDCalls = []string{"chmod", "fchmod", "fchmodat2", "open", "openat2", "creat", "mknod", "tmpfile"}

const setIDCode = `
os.umask(0)
os.chdir(sys.argv[1])
class How(ctypes.Structure): _fields_ = [('flags', ctypes.c_uint64), ('mode', ctypes.c_uint64), ('resolve', ctypes.c_uint64)]
def made(p): os.close(os.open(p, os.O_CREAT | os.O_WRONLY, 0o755)); return p
x86 = os.uname().machine == 'x86_64'
attempt('chmod', lambda: os.chmod(made('chmod'), 0o6755))
attempt('fchmod', lambda: os.fchmod(os.open(made('fchmod'), os.O_RDONLY), 0o6755))
say('fchmodat2', call(452, -100, made('fchmodat2').encode(), 0o6755, 0))
attempt('open', lambda: os.close(os.open('open', os.O_CREAT | os.O_WRONLY, 0o6755)))
say('openat2', call(437, -100, b'openat2', ctypes.byref(How(os.O_CREAT | os.O_WRONLY, 0o6755, 0)), 24))
say('creat', call(85, b'creat', 0o6755) if x86 else call(56, -100, b'creat', 0o101 | 0o1000, 0o6755)) # arm64 has none
attempt('mknod', lambda: os.mknod('mknod', 0o106755))
def tmpfile():
    fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o6755)
    libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, b'tmpfile', 0x400)
attempt('tmpfile', tmpfile)
os.chmod(made('plain'), 0o755)
` + ready

// setIDFiles lists files with one of the bits.
func setIDFiles(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			names = append(names, e.Name())
		}
	}
	return names
}

// setID has a program with a writable mount make such files.
func (t *trial) setID() error {
	dir := filepath.Join(t.dir, "rw")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the guest's
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 1000, 1000); err != nil {
			return err
		}
	}
	for d := t.dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // others must get there
		_ = os.Chmod(d, 0o755) //nolint:gosec // of the test
	}
	req := t.request(Payload{Code: setIDCode, Args: []string{"/data"}})
	req.Spec.Mounts = []sandbox.Mount{{Host: dir, Guest: "/data", Writable: true}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := t.engine.Run(ctx, req)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "plain")); err != nil || r.Status != sandboxSucceeded {
		return fmt.Errorf("it does not work at all: %w: %+v %q", err, r.Cause, r.Stderr)
	}
	if found := setIDFiles(dir); len(found) > 0 {
		return fmt.Errorf("on the host there are %v: %s", found, r.Stdout)
	}
	return nil
}

// dirty returns a file on the disk of /usr with pages that are not written yet.
func (a *arena) dirty() (*os.File, error) {
	var usr, st unix.Stat_t
	if err := unix.Stat("/usr", &usr); err != nil {
		return nil, err
	}
	for _, dir := range []string{"/var/tmp", a.dir, "/usr"} {
		f, err := os.CreateTemp(dir, "pinfold-dirty-")
		if err != nil {
			continue
		}
		_ = os.Remove(f.Name())
		if unix.Fstat(int(f.Fd()), &st) == nil && st.Dev == usr.Dev {
			_, err = f.Write(bytes.Repeat([]byte("dirty"), 1<<18))
			return f, err
		}
		_ = f.Close()
	}
	return nil, errors.New("no place on the disk of /usr to write to")
}

// flushed has a payload flush what it can. The kernel, and others on this machine, may do
// so as well: what should not be is looked for ten times, further and further apart.
func (a *arena) flushed(where dialogue, dirtyAfter bool) error {
	dirs, files, err := shown()
	if err != nil {
		return err
	}
	var found string
	for i := range 10 {
		time.Sleep(time.Duration(i) * 100 * time.Millisecond)
		f, err := a.dirty()
		if err != nil {
			return err
		}
		before, err := pages(f)
		if err != nil || before.Dirty == 0 {
			_ = f.Close()
			return fmt.Errorf("nothing is dirty: %+v %w", before, err)
		}
		out, runErr := where(flushCode, slices.Concat(dirs, files)...)
		after, err := pages(f)
		_ = f.Close()
		if err = errors.Join(err, runErr); err != nil {
			return err
		}
		found = fmt.Sprintf("of %d dirty pages %d are left: %s", before.Dirty, after.Dirty, out)
		if dirtyAfter == (after.Dirty >= before.Dirty) {
			return nil
		}
	}
	return errors.New(found)
}

const flushCode = `
import mmap
nr = dict(sync=162, syncfs=306, range=277) if os.uname().machine == 'x86_64' else dict(sync=81, syncfs=267, range=84)
for i in range(20):
    for p in sys.argv[1:]:
        fd = os.open(p, os.O_RDONLY)
        call(nr['syncfs'], fd); call(nr['range'], fd, 0, 0, 7)
        for f in os.fsync, os.fdatasync:
            try: f(fd)
            except OSError: pass
        if not os.path.isdir(p):
            m = libc.mmap; m.restype = ctypes.c_void_p
            at = m(None, 4096, 1, 1, fd, 0); libc.msync(ctypes.c_void_p(at), 4096, 4); libc.munmap(ctypes.c_void_p(at), 4096)
        os.close(fd)
    call(nr['sync'])
` + ready

// pages is what the host's page cache has of a file.
func pages(f *os.File) (unix.Cachestat_t, error) {
	var c unix.Cachestat_t
	err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &c, 0) //nolint:gosec // a descriptor
	return c, err
}

// cold are files that nobody maps.
var cold = []string{"/usr/share/zoneinfo/tzdata.zi", "/usr/share/zoneinfo/tzdata", "/usr/share/misc/magic.mgc", "/usr/share/perl/5.36.0/perl5db.pl", "/usr/share/common-licenses/GPL-3"}

// resident has a payload ask what is in memory of a file of the host's, and throw it
// out. blind says that it should not succeed.
func (a *arena) resident(where dialogue, blind bool) error {
	i := slices.IndexFunc(cold, func(p string) bool { _, err := os.Stat(p); return err == nil })
	if i < 0 {
		return errors.New("none of the files that could be used is here")
	}
	f, err := os.Open(cold[i])
	if err != nil {
		return err
	}
	defer f.Close()
	var found string
	for range 3 {
		if _, err := io.Copy(io.Discard, io.NewSectionReader(f, 0, 1<<30)); err != nil {
			return err
		}
		before, cacheErr := pages(f) // an ordinary user is not told
		out, err := where(residentCode, cold[i])
		if err != nil {
			return err
		}
		values := doorValues(out)
		after, _ := pages(f)
		kept := cacheErr != nil || after.Cache >= before.Cache
		told := values["nowait"] != "ENOTSUP" || values["cachestat"] != "ENOSYS" || values["mincore"] != "all"
		found = fmt.Sprintf("pages before %d, after %d; %s", before.Cache, after.Cache, out)
		if blind == (kept && !told) {
			return nil
		}
	}
	return errors.New(found)
}

const residentCode = `
p = sys.argv[1]; fd = os.open(p, os.O_RDONLY); size = os.fstat(fd).st_size
m = libc.mmap; m.restype = ctypes.c_void_p
at = m(None, size, 1, 1, fd, 0)
for advice in 4, 20, 21: libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), advice) # DONTNEED, COLD, PAGEOUT
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
n = (size + 4095) // 4096; vec = (ctypes.c_ubyte * n)()
r = libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), vec)
say('mincore', 'all' if r == 0 and sum(v & 1 for v in vec) == n else sum(v & 1 for v in vec))
attempt('nowait', lambda: os.preadv(fd, [bytearray(10)], size // 2, os.RWF_NOWAIT))
say('cachestat', call(451, fd, (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)(), 0))
` + ready
