// Package guest is the host half of the agent protocol: it runs commands and
// moves files in a sandbox over the one connection that a driver's machine
// gives, the same for every driver.
//
// Every byte that it reads may come from a hostile guest that has taken over
// the agent. So lengths, orders, counts, codes, texts and paths are checked;
// what a guest can make the host hold is bounded by flow control and by what
// was asked for; and the first violation ends the connection with a
// *sandbox.Error of code protocol, after which every call returns. What the
// agent says about a process is a claim, not evidence: causes are decided
// from the driver's counters.
//
// It makes no sandbox, knows no driver and sets no limits.
package guest
