package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"pinfold/internal/linux/idblock"
	"pinfold/sandbox"
)

// confine makes the surroundings of mmdebstrap, as the first process of its own
// namespaces: what of the host others keep secrets in is covered, and one tmpfs, which is
// as large as the limit says and is gone with the process, takes everything that is
// written. $1 is its size, $2 a limit on each process's memory in KiB; then the command.
const confine = `set -e
size=$1 memory=$2
shift 2
resolv=$(readlink -f /etc/resolv.conf || echo /etc/resolv.conf)
names=$(cat "$resolv" 2>/dev/null || true)
mount --make-rprivate /
for d in /home /root /run /srv /mnt /media /var/tmp /dev/shm; do
  if [ -d "$d" ] && [ ! -L "$d" ]; then mount -t tmpfs -o size=1m,mode=0755 tmpfs "$d"; fi
done
mount -t tmpfs -o "size=$size,mode=0755,nr_inodes=2000000" tmpfs /tmp
mount -t proc proc /proc 2>/dev/null || true
case $resolv in /run/*) mkdir -p "${resolv%/*}"; printf '%s\n' "$names" > "$resolv";; esac
ulimit -c 0
ulimit -v "$memory"
cd /tmp
exec "$@"
`

// debianEnv is all that mmdebstrap and the packages' scripts have of an environment. The
// time makes its archive the same each time: no file in it is newer, and Python compiles
// to files that go by the content of their source.
func debianEnv() []string {
	env := []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
		"SOURCE_DATE_EPOCH=" + strconv.Itoa(epoch), "PYTHONHASHSEED=0",
	}
	for _, proxy := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if v, ok := os.LookupEnv(proxy); ok {
			env = append(env, proxy+"="+v)
		}
	}
	return env
}

type debianRun struct {
	stdout io.ReadCloser
	cmd    *exec.Cmd
	block  *idblock.Block
	pool   *idblock.Pool
}

// startDebian starts mmdebstrap in user, mount, pid, ipc and uts namespaces of its own.
// Its root is a block of user ids that nobody else has, so on the host it may do nothing;
// the packages' users are others of the block. It ends with ctx and with this process,
// and all that it started with it.
func startDebian(ctx context.Context, args []string, limits amounts, said io.Writer) (*debianRun, error) {
	if os.Geteuid() != 0 {
		return nil, (&sandbox.Error{Code: sandbox.CodeSetupFailed, Field: "base.debian", Message: "only root can make a base of Debian's packages: their scripts need many user ids"}).
			WithHint("build it as root, and bring the template: sudo pinfold template build FILE, then pinfold template save and load")
	}
	r := &debianRun{}
	var err error
	if r.pool, err = idblock.New(blocks, idblock.NoProcess); err != nil {
		return nil, startError(err)
	}
	if r.block, err = r.pool.Lease(); err != nil {
		_ = r.pool.Close()
		return nil, startError(err)
	}
	r.cmd = exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", confine, "sh", strconv.FormatInt(limits.disk, 10), strconv.FormatInt(limits.memory>>10, 10)}, args...)...)
	r.cmd.Env, r.cmd.Dir, r.cmd.Stderr, r.cmd.WaitDelay = debianEnv(), "/", said, 10*time.Second
	base := r.block.Base
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: idblock.Size - 1}, {ContainerID: nobody, HostID: base + idblock.Size - 1, Size: 1}}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{}, Setsid: true, Pdeathsig: syscall.SIGKILL,
	}
	stdout, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start() // by a thread that stays, as Go's do: its end would be that of the process
	}
	if err != nil {
		r.release()
		return nil, startError(err)
	}
	r.stdout = stdout
	return r, nil
}

// blocks is the file of the ids of all of Pinfold's sandboxes on the host.
const blocks = "/run/pinfold/blocks"

// nobody is the last number that Debian's own users have.
const nobody = 65534

// wait waits for the end of everything.
func (r *debianRun) wait() error {
	_ = r.stdout.Close() // who writes on must not wait for a reader
	err := r.cmd.Wait()
	r.release()
	if e := new(exec.ExitError); errors.As(err, &e) {
		return fmt.Errorf("%s", e.ProcessState)
	}
	return err
}

func (r *debianRun) release() {
	_ = r.block.Release() // whoever wants the ids next looks whether they are free
	_ = r.pool.Close()
}

func startError(err error) error {
	return &sandbox.Error{Code: sandbox.CodeSetupFailed, Field: "base.debian", Message: "cannot start mmdebstrap in namespaces of its own: " + err.Error(), Err: err, Hint: "pinfold doctor says what this host lacks"}
}
