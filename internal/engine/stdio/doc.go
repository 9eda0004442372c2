// Package stdio is what a program prints and is given to read, on the host's side: its
// first bytes for a result (Capture), its last bytes for readers that come and go
// (Spool), how its two output streams follow each other, and its standard input,
// written piece by piece (Inlet). It bounds all of them; it knows no sandbox.
//
// Streams have the numbers of package wire: 1 is stdout, 2 is stderr. Where both are
// in an array, stdout stands first.
package stdio
