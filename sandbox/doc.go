// Package sandbox is Pinfold's public vocabulary: what a caller asks for
// (Spec, Limits), what comes back (Result, Cause, Usage, Isolation) and how a
// refusal is said (Error). The JSON names are the same at every edge: the
// command line, HTTP, MCP and Go.
//
// It is data and validation only: it starts nothing, touches no file and
// imports nothing but the standard library. To run a Spec, use package
// pinfold (in this process) or package client (against a server).
//
// All types are plain values; copying is cheap and concurrent reads are safe.
package sandbox
