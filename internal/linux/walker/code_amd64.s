//go:build linux

#include "textflag.h"

// The layout of a step, see doc.go.
#define STEP_NUMBER 0
#define STEP_ARGS   8
#define STEP_FLAGS  56
#define STEP_SAVE   64
#define STEP_NEXT   72
#define STEP_ID     80
#define STEP_SIZE   88

#define LOADARG(i, reg) \
	MOVQ (STEP_ARGS+8*i)(R12), reg \
	BTQ  $i, R13                   \
	JCC  2(PC)                     \
	MOVQ (reg), reg                \
	BTQ  $(8+i), R13               \
	JCC  2(PC)                     \
	MOVLQSX (reg), reg

#define MARK QUAD $0x5eadbeef0dd5ca1e

// In all of the code that is copied: the C calling convention, no address but
// relative ones, no stack check.

TEXT walk<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BX                 // three words: the stack is aligned for calls now
	PUSHQ R12
	PUSHQ R13
	MOVQ  DI, R12            // the step
	MOVQ  SI, BX             // where a failure is noted

next:
	MOVQ STEP_FLAGS(R12), R13
	LOADARG(0, DI)
	LOADARG(1, SI)
	LOADARG(2, DX)
	LOADARG(3, CX)
	LOADARG(4, R8)
	LOADARG(5, R9)
	MOVQ STEP_NUMBER(R12), R11
	BTQ  $16, R13
	JCS  call
	BTQ  $17, R13
	JCS  store
	BTQ  $18, R13
	JCS  back
	MOVQ CX, R10
	MOVQ R11, AX
	SYSCALL
	JMP  result

call:
	XORL AX, AX
	CALL R11
	MOVLQSX AX, AX
	JMP  result

store:
	SUBQ DX, SI
	MOVQ SI, (DI)
	MOVQ SI, AX              // whatever it is, it is no error
	JMP  kept

result:
	CMPQ AX, $0xfffffffffffff001
	JCC  failed
	MOVQ STEP_SAVE(R12), CX
	TESTQ CX, CX
	JEQ  kept
	MOVQ AX, (CX)

kept:
	BTQ  $21, R13
	JCS  jump
	BTQ  $20, R13
	JCC  advance
	TESTQ AX, AX
	JEQ  jump

advance:
	ADDQ $STEP_SIZE, R12
	JMP  next

failed:
	BTQ  $22, R13
	JCS  advance
	MOVQ STEP_ID(R12), CX
	MOVQ CX, 0(BX)
	MOVQ AX, 8(BX)

jump:
	MOVQ STEP_NEXT(R12), R12
	JMP  next

back:
	MOVQ DI, AX
	POPQ R13
	POPQ R12
	POPQ BX
	RET
	MARK

TEXT alloc<>(SB), NOSPLIT|NOFRAME, $0
	MOVQ 0(DI), AX           // the next address
	LEAQ (AX)(SI*1), DX
	CMPQ DX, 8(DI)
	JHI  map
	MOVQ DX, 0(DI)
	RET

map:
	XORL DI, DI
	MOVL $3, DX              // PROT_READ|PROT_WRITE
	MOVL $0x22, R10          // MAP_PRIVATE|MAP_ANONYMOUS
	MOVQ $-1, R8
	XORL R9, R9
	MOVL $9, AX              // mmap
	SYSCALL
	CMPQ AX, $0xfffffffffffff001
	JCS  done
	XORL AX, AX

done:
	RET
	MARK

TEXT free<>(SB), NOSPLIT|NOFRAME, $0
	MOVQ SI, DI
	MOVQ DX, SI
	MOVL $11, AX             // munmap
	SYSCALL
	RET
	MARK

// func walkAt() *byte
TEXT ·walkAt(SB), NOSPLIT, $0-8
	LEAQ walk<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func allocAt() *byte
TEXT ·allocAt(SB), NOSPLIT, $0-8
	LEAQ alloc<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func freeAt() *byte
TEXT ·freeAt(SB), NOSPLIT, $0-8
	LEAQ free<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET
