//go:build linux

#include "textflag.h"

// The handler of SIGCHLD, see childsignal_amd64.s.
TEXT ·childSignal(SB), NOSPLIT|NOFRAME, $0
	MOVW ·childEvents(SB), R0
	MOVD $·one(SB), R1
	MOVD $8, R2
	MOVD $64, R8  // write
	SVC
	RET           // to the kernel's own code, which the link register has

// Where a handler returns to, where the kernel is asked for it.
TEXT ·signalReturn(SB), NOSPLIT|NOFRAME, $0
	MOVD $139, R8 // rt_sigreturn
	SVC
	BRK

TEXT ·signalAddresses(SB), NOSPLIT, $0-16
	MOVD $·childSignal(SB), R0
	MOVD R0, handler+0(FP)
	MOVD $·signalReturn(SB), R0
	MOVD R0, restorer+8(FP)
	RET
