//go:build linux

package qemu

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/failure"
	"pinfold/sandbox"
)

// fingerprint is all that a machine's memory and devices fit to. A machine goes on only
// where it is the same.
type fingerprint struct {
	QEMU      string `json:"qemu"`      // its file
	Kernel    string `json:"kernel"`    // and with it the initial file system
	Processor string `json:"processor"` // "emulated", or what the host's is by KVM
	Disk      string `json:"disk"`      // what describes all that it shows
	Memory    int64  `json:"memory"`    // MiB
	CPUs      int    `json:"cpus"`
}

// fingerprint is that of machines that are launched in that way.
func (d *Driver) fingerprint(l launch) (f fingerprint, err error) {
	f = fingerprint{Processor: "emulated " + processor, Memory: l.shape.memory, CPUs: l.shape.cpus, Disk: l.disk.Sum()}
	var st unix.Stat_t
	if err := unix.Stat(d.host.program, &st); err != nil {
		return f, failure.Of("look at QEMU", err)
	}
	f.QEMU = fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim)
	if l.kvm {
		if f.Processor, err = hostProcessor(); err != nil {
			return f, failure.Of("look at the processor", err)
		}
	}
	f.Kernel, err = d.host.kernelSum()
	return f, err
}

// kernelSum is of what machines boot.
func (h *host) kernelSum() (string, error) {
	h.summing.Lock()
	defer h.summing.Unlock()
	if h.sum != "" {
		return h.sum, nil
	}
	sum := sha256.New()
	for _, f := range []*os.File{h.image, h.initramfs} {
		if _, err := io.Copy(sum, io.NewSectionReader(f, 0, 1<<40)); err != nil {
			return "", failure.Of("read the kernel", err)
		}
	}
	h.sum = hex.EncodeToString(sum.Sum(nil))
	return h.sum, nil
}

// hostProcessor is what a machine by KVM sees of the host's processor.
func hostProcessor() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(text), "\n\n")
	sum := sha256.New()
	for line := range strings.Lines(first) {
		switch key, _, _ := strings.Cut(line, "\t"); key {
		case "vendor_id", "cpu family", "model", "stepping", "microcode", "flags":
			_, _ = io.WriteString(sum, line)
		}
	}
	return "of the host " + hex.EncodeToString(sum.Sum(nil)), nil
}

func (f fingerprint) encode() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic("qemu: " + err.Error()) // strings and numbers
	}
	return b
}

// suits says why a snapshot with that fingerprint is of no use here.
func (f fingerprint) suits(text []byte) error {
	var of fingerprint
	if err := json.Unmarshal(text, &of); err != nil {
		return errForm
	}
	var other string
	hint := "make a new snapshot: what ran in this one cannot go on here"
	switch {
	case of == f:
		return nil
	case of.QEMU != f.QEMU:
		other = "QEMU"
	case of.Kernel != f.Kernel:
		other = "kernel"
	case of.Processor != f.Processor:
		other = "processor"
	case of.Disk != f.Disk:
		other = "template, which is not what it was any more"
	default:
		other, hint = "size", "leave out limits: a machine that goes on has those that it had"
	}
	return &sandbox.Error{Code: sandbox.CodeConflict, Field: "snapshot", Message: "the snapshot is of a virtual machine of another " + other, Hint: hint}
}
