// Package wire is the language that the host and the agent speak: frames on
// one byte stream, the messages in them and the flow control between them.
// PROTOCOL.md beside this file describes it.
//
// Both halves use this package, and the host reads with it what a hostile
// guest may have written: every length is bounded before anything is read,
// every message is decoded strictly, and everything out of order is a
// *Violation, after which the connection must not be used. It knows nothing
// of processes, files or sandboxes and imports only the standard library.
package wire
