//go:build linux

#include "textflag.h"

// The program, see doc.go. It is not called but copied, and begins as the kernel
// begins every program: the stack has the number of arguments (1), the argument, 0,
// and the environment. The number's place serves as a buffer.
TEXT ·program(SB), NOSPLIT|NOFRAME, $0
	MOVL $157, AX      // prctl
	MOVL $4, DI        // PR_SET_DUMPABLE
	XORL SI, SI
	SYSCALL
	MOVL $72, AX       // fcntl
	MOVL $4, DI        // AgentFD
	MOVL $2, SI        // F_SETFD
	MOVL $1, DX        // FD_CLOEXEC
	SYSCALL

next:
	XORL AX, AX        // read
	MOVL $3, DI        // ConnFD
	MOVQ SP, SI
	MOVL $1, DX
	SYSCALL
	CMPQ AX, $-4       // EINTR
	JEQ  next
	TESTQ AX, AX
	JEQ  over
	CMPQ AX, $1
	JNE  quit
	MOVBLZX (SP), AX
	CMPL AX, $0x77     // BecomeAgent
	JEQ  become
	CMPL AX, $0x65     // KillGuest
	JNE  quit
	MOVL $39, AX       // getpid: elsewhere it would kill the whole host
	SYSCALL
	CMPQ AX, $1
	JNE  quit

end:
	MOVL $62, AX       // kill
	MOVQ $-1, DI
	MOVL $9, SI        // SIGKILL
	SYSCALL
	CMPQ AX, $-3       // ESRCH
	JEQ  ended
	MOVL $61, AX       // wait4: until there is no child any more
	MOVQ $-1, DI
	XORL SI, SI
	MOVL $0x40000000, DX // __WALL
	XORL R10, R10
	SYSCALL
	MOVL $62, AX       // kill
	MOVQ $-1, DI
	MOVL $9, SI
	SYSCALL
	CMPQ AX, $-3
	JEQ  ended
	MOVL $7, AX        // poll: a fork is another's child
	XORL DI, DI
	XORL SI, SI
	MOVL $1, DX        // ms
	SYSCALL
	JMP  end

ended:
	MOVL $1, AX        // write: the byte is where it was
	MOVL $3, DI
	MOVQ SP, SI
	MOVL $1, DX
	SYSCALL
	JMP  next

become:
	MOVB $0, (SP)
	MOVL $322, AX      // execveat
	MOVL $4, DI        // AgentFD
	MOVQ SP, SI        // ""
	LEAQ 8(SP), DX     // arguments
	LEAQ 24(SP), R10   // environment
	MOVL $0x1000, R8   // AT_EMPTY_PATH
	SYSCALL

quit:
	MOVL $127, DI
	MOVL $231, AX      // exit_group
	SYSCALL
	JMP  quit

over:
	XORL DI, DI
	MOVL $231, AX      // exit_group
	SYSCALL
	JMP  over
	LONG $0x4e450b0b   // mark
	LONG $0x0b0b0b44

TEXT ·programAddress(SB), NOSPLIT, $0-8
	LEAQ ·program(SB), AX
	MOVQ AX, ret+0(FP)
	RET
