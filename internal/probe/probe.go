// Package probe finds out what this host can do for Pinfold, and says it as
// declared findings: what was asked, what was tried and how, what the answer
// means, and the command that changes it. It is what "pinfold doctor" shows.
//
// It changes nothing on the host. What needs a process of its own (making
// namespaces, running a guest in KVM) happens in a child that is bounded in
// time and gone when Run returns.
//
// It does not decide about runs: each driver probes for itself what it
// enforces, and results say so.
package probe

import "slices"

// Severity says how much a finding matters.
type Severity string

// Severities, the worst first.
const (
	Problem Severity = "problem" // the native driver cannot work
	Warning Severity = "warning" // something cannot be enforced, or weakens the host
	Info    Severity = "info"    // good to know; nothing is wrong
	OK      Severity = "ok"
)

// ChildCommand is the first argument with which a Run starts this program
// again, for what must be tried in a process of its own. main hands it to Child.
const ChildCommand = "__probe"

// Answer is what a probe found.
type Answer string

// A probe has three answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "could-not-tell"
)

// Finding is one question about the host with its answer.
type Finding struct {
	Code     string   `json:"code"`  // stable: "cgroup.memory"
	Title    string   `json:"title"` // the question, as a statement that Answer confirms or denies
	Severity Severity `json:"severity"`
	Answer   Answer   `json:"answer"`
	Probed   string   `json:"probed"`          // what was tried, and what came of it
	Means    string   `json:"means,omitempty"` // why it matters
	Fix      string   `json:"fix,omitempty"`   // a command, when there is something to change
}

// Impossible says whether something makes the native driver impossible here.
func Impossible(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Problem })
}
