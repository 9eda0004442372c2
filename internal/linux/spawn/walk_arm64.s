//go:build linux

#include "textflag.h"

// The layout of a step, see type step.
#define STEP_TRAP  0
#define STEP_ARGS  8
#define STEP_FLAGS 56
#define STEP_SAVE  64
#define STEP_SIZE  72

#define LOADARG(i, reg) \
	MOVD (STEP_ARGS+8*i)(R19), reg \
	TBZ  $i, R9, 2(PC)             \
	MOVD (reg), reg

// func cloneAndWalk(trap, a0, a1, a2 uintptr, steps *step, count uintptr, out *outcome) uintptr
//
// See walk_amd64.s.
TEXT ·cloneAndWalk(SB), NOSPLIT, $0-64
	MOVD out+48(FP), R21
	MOVD $2, R0              // SIG_SETMASK
	ADD  $16, R21, R1        // out.all
	ADD  $24, R21, R2        // out.old
	MOVD $8, R3
	MOVD $135, R8            // rt_sigprocmask
	SVC
	MOVD a0+8(FP), R0
	MOVD a1+16(FP), R1
	MOVD a2+24(FP), R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD steps+32(FP), R19
	MOVD count+40(FP), R20
	MOVD trap+0(FP), R8
	SVC
	CBZ  R0, child
	MOVD R0, ret+56(FP)
	MOVD $2, R0              // the mask as it was
	ADD  $24, R21, R1
	MOVD ZR, R2
	MOVD $8, R3
	MOVD $135, R8
	SVC
	RET

child:
	MOVD ZR, R22             // index of the step

next:
	MOVD R22, 0(R21)         // out.reached
	CMP  R20, R22
	BGE  end
	MOVD STEP_FLAGS(R19), R9
	LOADARG(0, R0)
	LOADARG(1, R1)
	LOADARG(2, R2)
	LOADARG(3, R3)
	LOADARG(4, R4)
	LOADARG(5, R5)
	MOVD STEP_TRAP(R19), R8
	SVC
	MOVD STEP_FLAGS(R19), R9
	CMN  $4095, R0
	BCS  failed
	CBNZ R0, save
	TBZ  $9, R9, save        // flagPositive: zero is a failure
	MOVD $-32, R0            // EPIPE

failed:
	TBNZ $8, R9, advance     // flagOptional
	NEG  R0, R0
	MOVD R0, 8(R21)          // out.errno
	B    end

save:
	TBZ  $10, R9, keep       // flagDouble: this one ends, the new one has got zero
	CBNZ R0, quit

keep:
	MOVD STEP_SAVE(R19), R10
	CBZ  R10, advance
	MOVD R0, (R10)

advance:
	ADD  $STEP_SIZE, R19
	ADD  $1, R22
	B    next

quit:
	MOVD ZR, R0
	MOVD $94, R8             // exit_group
	SVC
	B    quit

end:
	MOVD $127, R0
	MOVD $94, R8             // exit_group
	SVC
	B    end
