// Package kvm finds out whether this host's KVM runs guest code, by running
// some: a few instructions in real mode and in 64-bit mode. It is a probe, not
// a virtual machine monitor.
//
// That /dev/kvm opens, and even that a virtual CPU can be made, proves nothing:
// there are hosts where both work and nothing ever runs. Even these few
// instructions are no proof that a whole kernel boots, which also needs
// timers, interrupts and more of the processor.
package kvm

// Step is how far a trial came.
type Step string

// The steps of a trial, in order.
const (
	StepOpen     Step = "open /dev/kvm"
	StepVM       Step = "make a virtual machine"
	StepCPU      Step = "make a virtual CPU"
	StepRealMode Step = "run 16-bit code"
	StepLongMode Step = "run 64-bit code with paging"
	StepTimer    Step = "take timer interrupts"
	StepDone     Step = ""
)
