//go:build linux

package qemu

import (
	"fmt"
	"math"
	"os"
	"runtime"

	"pinfold/internal/driver"
	"pinfold/internal/warden/wardenwire"
)

// Descriptors of QEMU's, by what they are for.
const (
	fileControl = firstFile + iota
	fileAgent
	fileMonitor
	fileDisk
	fileKernel
	fileInitramfs
	fileMemory
)

// shape is how large a machine is.
type shape struct {
	memory int64 // MiB
	cpus   int
}

// Of a machine's memory these are not the sandbox's: the kernel, the warden, the agent, and
// what the kernel needs to know about each page of the rest.
const (
	ownMemory   = 144 << 20
	kernelShare = 32 // one byte for so many
)

// shapeOf is a machine that has room for a sandbox: its disk is memory, too.
func shapeOf(p driver.Plan) shape {
	need := p.Limits.MemoryBytes + p.Limits.DiskBytes + 1024*p.Limits.Inodes
	need += need/kernelShare + ownMemory
	return shape{memory: (need + memoryStep - 1) / memoryStep * memoryStep >> 20, cpus: max(1, min(int(math.Ceil(p.Limits.CPUs)), runtime.NumCPU()))}
}

// memoryStep is in what machines' memory grows: those of one size share a snapshot.
const memoryStep = 64 << 20

// Of the host's memory QEMU may take what the machine has and this: its program, what it
// translates the machine's code into, and what it keeps for each device.
const (
	translated   = 64 << 20
	emulatorsOwn = 192 << 20
)

// options of the kernel. The console tells why a machine does not boot. Of the processors'
// flaws none is there under emulation.
const kernelOptions = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check random.trust_cpu=on cgroup_no_v1=all 8250.nr_uarts=1 rdinit=/init"

// launch says what a QEMU is to run.
type launch struct {
	id      string
	shape   shape
	disk    *disk
	memory  *os.File // the machine's; nil: QEMU's own
	resumes bool     // it goes on from what was saved, and does not boot
	keeps   bool     // and is to be saved itself
}

// command is QEMU's command line.
func command(l launch) []string {
	s := l.shape
	args := []string{
		"qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-name", "pinfold",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		// Newer kernels change their own code while they run, which QEMU 7 does wrong where
		// each processor has a thread.
		"-accel", fmt.Sprintf("tcg,thread=single,tb-size=%d", translated>>20),
		"-M", "q35,usb=off,vmport=off,hpet=off,graphics=off", "-cpu", "max",
		"-m", fmt.Sprint(s.memory), "-smp", fmt.Sprint(s.cpus),
		"-kernel", fd(fileKernel), "-initrd", fd(fileInitramfs), "-append", kernelOptions,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", fileMonitor), "-mon", "chardev=monitor,mode=control",
		"-blockdev", fmt.Sprintf("nbd,node-name=disk,read-only=on,server.type=fd,server.str=%d", fileDisk),
		"-device", "virtio-blk-pci,drive=disk",
		"-device", "virtio-serial-pci",
	}
	for _, port := range []struct {
		file int
		name string
	}{{fileControl, wardenwire.PortControl}, {fileAgent, wardenwire.PortAgent}} {
		args = append(args, "-chardev", fmt.Sprintf("socket,id=c%d,fd=%d", port.file, port.file),
			"-device", fmt.Sprintf("virtserialport,chardev=c%d,name=%s", port.file, port.name))
	}
	if l.memory != nil {
		share := "on"
		if l.resumes {
			if !l.keeps {
				share = "off" // what the machine writes is its own
			}
			args = append(args, "-incoming", "defer")
		}
		args = append(args, "-machine", "memory-backend=ram",
			"-object", fmt.Sprintf("memory-backend-file,id=ram,size=%dM,mem-path=%s,share=%s", s.memory, fd(fileMemory), share))
	}
	return args
}

func fd(n int) string { return fmt.Sprintf("/proc/self/fd/%d", n) }
