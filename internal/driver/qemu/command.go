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

// options of the kernel. The console tells why a machine does not boot. Of a processor's
// flaws none is there under emulation. What a kernel does by itself from time to time it
// would do first of all in each machine that goes on from a snapshot, where all of it is
// code that the emulator has not seen yet; and it makes pages of 2 MB out of small ones,
// each of which is then a machine's own.
const kernelOptions = "console=ttyS0 quiet panic=-1 no_timer_check random.trust_cpu=on cgroup_no_v1=all 8250.nr_uarts=1 rdinit=/init " +
	"nowatchdog psi=0 audit=0 apparmor=0 mce=off rcupdate.rcu_cpu_stall_suppress=1 transparent_hugepage=never"

// kernelEmulated is what it is told besides under emulation.
const kernelEmulated = " mitigations=off"

// processor is what the machine's is. Of what QEMU can emulate it lacks what is slower there
// than without: a page is cleared and copied by the byte where a processor does so fast, and
// tables of pages have a fifth level.
const processor = "max,erms=off,fsrm=off,la57=off"

// launch says what a QEMU is to run.
type launch struct {
	id      string
	shape   shape
	disk    *disk
	memory  *os.File // the machine's; nil: QEMU's own
	resumes bool     // it goes on from what was saved, and does not boot
	keeps   bool     // and is to be saved itself
	bare    bool     // and what was saved is the state of its devices alone (see memory.go)
	kvm     bool     // the host's processor runs it
}

// command is QEMU's command line.
func command(l launch) []string {
	s := l.shape
	// Newer kernels change their own code while they run, which QEMU 7 does wrong where
	// each processor has a thread.
	accel, cpu, options := fmt.Sprintf("tcg,thread=single,tb-size=%d", translated>>20), processor, kernelOptions+kernelEmulated
	if l.kvm {
		accel, cpu, options = "kvm", "host", kernelOptions
	}
	args := []string{
		"qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-name", "pinfold",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-accel", accel,
		"-M", "q35,usb=off,vmport=off,hpet=off,graphics=off", "-cpu", cpu,
		"-global", "apic-common.vapic=off", // of use for Windows only; its state needs a ROM that snapshots have not
		"-m", fmt.Sprint(s.memory), "-smp", fmt.Sprint(s.cpus),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", fileMonitor), "-mon", "chardev=monitor,mode=control",
		"-blockdev", fmt.Sprintf("nbd,node-name=disk,read-only=on,server.type=fd,server.str=%d", fileDisk),
		"-device", "virtio-blk-pci,drive=disk",
		"-device", "virtio-serial-pci",
	}
	if l.resumes {
		// What it boots is in its memory, and would only be read again. The program that
		// loads it is a part of the machine.
		args = append(args, "-option-rom", "linuxboot_dma.bin")
	} else {
		args = append(args, "-kernel", fd(fileKernel), "-initrd", fd(fileInitramfs), "-append", options)
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
			if l.bare {
				args = append(args, "-global", "migration.send-configuration=off", "-machine", "suppress-vmdesc=on")
			}
		}
		args = append(args, "-machine", "memory-backend=ram",
			"-object", fmt.Sprintf("memory-backend-file,id=ram,size=%dM,mem-path=%s,share=%s", s.memory, fd(fileMemory), share))
	}
	return args
}

func fd(n int) string { return fmt.Sprintf("/proc/self/fd/%d", n) }
