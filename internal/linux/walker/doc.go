// Package walker has machine code for a process that is not a program of ours: it
// walks a table of calls that lies in that process's memory.
//
// A process that is to be forked often must not touch its own memory between
// two forks: each page that it writes to is copied again and again, and an interpreter
// writes to hundreds by doing anything at all. So a zygote (package zygote) maps this code,
// builds the table, and from then on walks it.
// Package spawn walks tables too, but of its own process's memory, and towards an exec.
//
// # The table
//
// A step is eleven words of 64 bits:
//
//	0      number of the system call, or address of the function
//	1..6   arguments
//	7      flags
//	8      address of the word that receives the result, or 0
//	9      address of the step to jump to
//	10     number of the step, to say which one failed
//
// Flags:
//
//	0..5   the argument of that number is the address of a word to load it from
//	8..13  the same, of 32 bits with a sign
//	16     call a function, which returns an int
//	17     store the second argument less the third at the address in the first; that
//	       is the result
//	18     return the first argument to whoever called the walk
//	20     jump if the result is 0
//	21     jump always
//	22     go on after an error
//
// A result from -4095 to -1 is an error: the step's number and the result are
// stored in the two words of the walk's second argument, and it jumps.
package walker
