//go:build linux

package native

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/zygote"
)

// zygoteProgram is the life of a zygote up to its exec.
func (n *initSpec) zygoteProgram(uid int, spec zygote.Spec) *spawn.Program {
	n.switchUser, n.uid, n.gid = true, uid, uid // its writable places are the zygote's
	made := map[string]bool{}
	keep := append([]int{n.socket}, n.join...)
	for _, l := range n.layers {
		keep = append(keep, int(l.Fd()))
	}
	p := spawn.New(n.keepRoot(keep)...)
	n.begin(p)
	p.Call("set umask", unix.SYS_UMASK, 0)
	n.root(p)
	for _, f := range spec.Files { // in a writable place: seen here only
		if dir := rel(path.Dir(f.Path)); !made[dir] {
			mount.Mkdir(p, dir, 0o755)
			made[dir] = true
		}
		mount.WriteFile(p, rel(f.Path), f.Content, 0o644)
	}
	n.surroundings(p)
	n.descriptors(p)
	p.NoNewPrivs()
	p.DropBounding()
	p.Setresgid(uid)
	p.Setresuid(uid)
	p.ClearCapabilities()
	p.Call("keep host dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	p.Call("die with the host", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL), 0, 0, 0)
	p.SendDescriptors(n.socket, []spawn.Cell{n.hold})
	p.CloseOnExecFrom(zygote.FD)
	p.Dup2(n.socket, zygote.FD)
	p.Chdir(strings.TrimSuffix(spec.Home, "/"))
	p.Setsid()
	p.UnblockSignals()
	p.Exec(spec.Args[0], spec.Args, spec.Env)
	return p
}
