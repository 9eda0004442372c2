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
	MOVD (STEP_ARGS+8*i)(R19), reg \
	TBZ  $i, R20, 2(PC)            \
	MOVD (reg), reg                \
	TBZ  $(8+i), R20, 2(PC)        \
	MOVW (reg), reg

#define MARK \
	WORD $0x0dd5ca1e \
	WORD $0x5eadbeef

// See code_amd64.s.

TEXT walk<>(SB), NOSPLIT|NOFRAME, $0
	SUB  $32, RSP
	STP  (R19, R20), 0(RSP)
	STP  (R21, R30), 16(RSP)
	MOVD R0, R19             // the step
	MOVD R1, R21             // where a failure is noted

next:
	MOVD STEP_FLAGS(R19), R20
	LOADARG(0, R0)
	LOADARG(1, R1)
	LOADARG(2, R2)
	LOADARG(3, R3)
	LOADARG(4, R4)
	LOADARG(5, R5)
	MOVD STEP_NUMBER(R19), R8
	TBNZ $16, R20, call
	TBNZ $17, R20, store
	TBNZ $18, R20, back
	SVC
	B    result

call:
	CALL (R8)
	SXTW R0, R0
	B    result

store:
	SUB  R2, R1
	MOVD R1, (R0)
	MOVD R1, R0              // whatever it is, it is no error
	B    kept

result:
	CMN  $4095, R0
	BCS  failed
	MOVD STEP_SAVE(R19), R9
	CBZ  R9, kept
	MOVD R0, (R9)

kept:
	TBNZ $21, R20, jump
	TBZ  $20, R20, advance
	CBZ  R0, jump

advance:
	ADD  $STEP_SIZE, R19
	B    next

failed:
	TBNZ $22, R20, advance
	MOVD STEP_ID(R19), R9
	MOVD R9, 0(R21)
	MOVD R0, 8(R21)

jump:
	MOVD STEP_NEXT(R19), R19
	B    next

back:
	LDP  16(RSP), (R21, R30)
	LDP  0(RSP), (R19, R20)
	ADD  $32, RSP
	RET
	MARK

TEXT alloc<>(SB), NOSPLIT|NOFRAME, $0
	MOVD 0(R0), R2           // the next address
	ADD  R1, R2, R3
	MOVD 8(R0), R4
	CMP  R4, R3
	BHI  map
	MOVD R3, 0(R0)
	MOVD R2, R0
	RET

map:
	MOVD ZR, R0
	MOVD $3, R2              // PROT_READ|PROT_WRITE
	MOVD $0x22, R3           // MAP_PRIVATE|MAP_ANONYMOUS
	MOVD $-1, R4
	MOVD ZR, R5
	MOVD $222, R8            // mmap
	SVC
	CMN  $4095, R0
	BCC  done
	MOVD ZR, R0

done:
	RET
	MARK

TEXT free<>(SB), NOSPLIT|NOFRAME, $0
	MOVD R1, R0
	MOVD R2, R1
	MOVD $215, R8            // munmap
	SVC
	RET
	MARK

// func walkAt() *byte
TEXT ·walkAt(SB), NOSPLIT, $0-8
	MOVD $walk<>(SB), R0
	MOVD R0, ret+0(FP)
	RET

// func allocAt() *byte
TEXT ·allocAt(SB), NOSPLIT, $0-8
	MOVD $alloc<>(SB), R0
	MOVD R0, ret+0(FP)
	RET

// func freeAt() *byte
TEXT ·freeAt(SB), NOSPLIT, $0-8
	MOVD $free<>(SB), R0
	MOVD R0, ret+0(FP)
	RET
