//go:build linux

#include "textflag.h"

// The program, see code_amd64.s.
TEXT ·program(SB), NOSPLIT|NOFRAME, $0
	MOVD RSP, R19      // the number of arguments
	SUB  $32, R19, R20 // below the stack, which no signal uses
	MOVD $167, R8      // prctl
	MOVD $4, R0        // PR_SET_DUMPABLE
	MOVD ZR, R1
	SVC
	MOVD $25, R8       // fcntl
	MOVD $4, R0        // AgentFD
	MOVD $2, R1        // F_SETFD
	MOVD $1, R2        // FD_CLOEXEC
	SVC

next:
	MOVD $63, R8       // read
	MOVD $3, R0        // ConnFD
	MOVD R19, R1
	MOVD $1, R2
	SVC
	CMN  $4, R0        // EINTR
	BEQ  next
	CBZ  R0, over
	CMP  $1, R0
	BNE  quit
	MOVBU (R19), R0
	CMP  $0x77, R0     // BecomeAgent
	BEQ  become
	CMP  $0x65, R0     // KillGuest
	BNE  quit
	MOVD $172, R8      // getpid: elsewhere it would kill the whole host
	SVC
	CMP  $1, R0
	BNE  quit

end:
	MOVD $129, R8      // kill
	MOVD $-1, R0
	MOVD $9, R1        // SIGKILL
	SVC
	CMN  $3, R0        // ESRCH
	BEQ  ended
	MOVD $260, R8      // wait4: until there is no child any more
	MOVD $-1, R0
	MOVD ZR, R1
	MOVD $0x40000000, R2 // __WALL
	MOVD ZR, R3
	SVC
	MOVD $129, R8      // kill
	MOVD $-1, R0
	MOVD $9, R1
	SVC
	CMN  $3, R0
	BEQ  ended
	MOVD ZR, (R20)     // no second
	MOVD $1000000, R0  // but a millisecond
	MOVD R0, 8(R20)
	MOVD $101, R8      // nanosleep: a fork is another's child
	MOVD R20, R0
	MOVD ZR, R1
	SVC
	B    end

ended:
	MOVD $64, R8       // write: the byte is where it was
	MOVD $3, R0
	MOVD R19, R1
	MOVD $1, R2
	SVC
	B    next

become:
	MOVB ZR, (R19)
	MOVD $281, R8      // execveat
	MOVD $4, R0        // AgentFD
	MOVD R19, R1       // ""
	ADD  $8, R19, R2   // arguments
	ADD  $24, R19, R3  // environment
	MOVD $0x1000, R4   // AT_EMPTY_PATH
	SVC

quit:
	MOVD $127, R0
	MOVD $94, R8       // exit_group
	SVC
	B    quit

over:
	MOVD ZR, R0
	MOVD $94, R8       // exit_group
	SVC
	B    over
	WORD $0x4e450b0b   // mark
	WORD $0x0b0b0b44

TEXT ·programAddress(SB), NOSPLIT, $0-8
	MOVD $·program(SB), R0
	MOVD R0, ret+0(FP)
	RET
