//go:build linux

#include "textflag.h"

// The handler of SIGCHLD: it adds one to the eventfd, and touches nothing of Go's.
// The kernel calls it on the thread's signal stack and restores every register.
TEXT ·childSignal(SB), NOSPLIT|NOFRAME, $0
	MOVL ·childEvents(SB), DI
	LEAQ ·one(SB), SI
	MOVL $8, DX
	MOVL $1, AX  // write
	SYSCALL
	RET          // to signalReturn

// Where a handler returns to.
TEXT ·signalReturn(SB), NOSPLIT|NOFRAME, $0
	MOVL $15, AX // rt_sigreturn
	SYSCALL
	INT  $3

TEXT ·signalAddresses(SB), NOSPLIT, $0-16
	LEAQ ·childSignal(SB), AX
	MOVQ AX, handler+0(FP)
	LEAQ ·signalReturn(SB), AX
	MOVQ AX, restorer+8(FP)
	RET
