// Package attacks holds what hostile programs try against a sandbox, as data,
// and runs it. Every case has a positive control: the same attack with the
// defence taken away, harmlessly for this machine, must succeed first, or the
// case proves nothing and does not count. What an attack achieved is judged on
// the host; what it prints counts only for what it saw inside.
//
// The payloads probe whether a door is shut and go no further: nothing here is
// an exploit. The list with explanations is docs/attacks.md, made from the same
// data. Tests of single mechanisms stay beside the code.
package attacks
