//go:build linux

#include "textflag.h"

// The layout of a step, see type step.
#define STEP_TRAP  0
#define STEP_ARGS  8
#define STEP_FLAGS 56
#define STEP_SAVE  64
#define STEP_SIZE  72

#define LOADARG(i, reg) \
	MOVQ (STEP_ARGS+8*i)(R12), reg \
	BTQ  $i, CX                    \
	JCC  2(PC)                     \
	MOVQ (reg), reg

// func cloneAndWalk(trap, a0, a1, a2 uintptr, steps *step, count uintptr, out *outcome) uintptr
//
// The parent returns the result of clone or clone3. The child walks the steps and never
// returns. It touches no stack: the parent goes on using the same one.
TEXT ·cloneAndWalk(SB), NOSPLIT, $0-64
	MOVQ out+48(FP), BX
	MOVQ $2, DI              // SIG_SETMASK
	LEAQ 16(BX), SI          // out.all
	LEAQ 24(BX), DX          // out.old
	MOVQ $8, R10
	MOVQ $14, AX             // rt_sigprocmask
	SYSCALL
	MOVQ a0+8(FP), DI
	MOVQ a1+16(FP), SI
	MOVQ a2+24(FP), DX
	XORQ R10, R10
	XORQ R8, R8
	MOVQ steps+32(FP), R12
	MOVQ count+40(FP), R13
	MOVQ trap+0(FP), AX
	SYSCALL
	TESTQ AX, AX
	JEQ  child
	MOVQ AX, ret+56(FP)
	MOVQ $2, DI              // the mask as it was
	LEAQ 24(BX), SI
	XORQ DX, DX
	MOVQ $8, R10
	MOVQ $14, AX
	SYSCALL
	RET

child:
	XORQ R15, R15            // index of the step

next:
	MOVQ R15, 0(BX)          // out.reached
	CMPQ R15, R13
	JCC  end
	MOVQ STEP_FLAGS(R12), CX
	LOADARG(0, DI)
	LOADARG(1, SI)
	LOADARG(2, DX)
	LOADARG(3, R10)
	LOADARG(4, R8)
	LOADARG(5, R9)
	MOVQ STEP_TRAP(R12), AX
	SYSCALL
	MOVQ STEP_FLAGS(R12), CX // the kernel clobbered CX
	CMPQ AX, $0xfffffffffffff001
	JCC  failed
	TESTQ AX, AX
	JNE  save
	BTQ  $9, CX              // flagPositive: zero is a failure
	JCC  save
	MOVQ $-32, AX            // EPIPE

failed:
	BTQ  $8, CX              // flagOptional
	JCS  advance
	NEGQ AX
	MOVQ AX, 8(BX)           // out.errno
	JMP  end

save:
	BTQ  $10, CX             // flagDouble: this one ends, the new one has got zero
	JCC  keep
	TESTQ AX, AX
	JNE  quit

keep:
	MOVQ STEP_SAVE(R12), CX
	TESTQ CX, CX
	JEQ  advance
	MOVQ AX, (CX)

advance:
	ADDQ $STEP_SIZE, R12
	INCQ R15
	JMP  next

quit:
	XORL DI, DI
	MOVL $231, AX            // exit_group
	SYSCALL
	JMP  quit

end:
	MOVL $127, DI
	MOVL $231, AX            // exit_group
	SYSCALL
	JMP  end
