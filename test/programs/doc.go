// Package programs runs what others wrote, and what honest users write, outside
// and inside a sandbox, and compares: modules of CPython's own test suite, and
// programs in many languages that use threads, workers, servers, certificates
// and databases. They are the benign twins of the attacks: a sandbox that stops
// these is wrong, however safe it is.
//
// It judges nothing by time, and nothing by what we think a program should do:
// the same program outside says what is right.
package programs
