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

import (
	"context"
	"sync"
)

// Severity says how much a finding matters.
type Severity string

// Severities, the worst first.
const (
	Problem Severity = "problem" // the native driver cannot work
	Warning Severity = "warning" // something cannot be enforced, or weakens the host
	Info    Severity = "info"    // good to know; nothing is wrong
	OK      Severity = "ok"
)

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

// Run asks every question, in the order of the table. It takes about a tenth
// of a second; when ctx ends, what is not known yet is "could not tell".
func Run(ctx context.Context) []Finding {
	return realHost(ctx).findings(ctx)
}

// question is one row of the table: everything about a finding that does not
// depend on the host.
type question struct {
	code, title string
	good        Answer   // the answer that is fine
	bad         Severity // when the answer is the opposite
	unknown     Severity // when there is no answer
	means, fix  string
	ask         func(ctx context.Context, h *host) reply
}

// reply is what depends on the host. Fields that are set replace the table's.
type reply struct {
	answer   Answer
	probed   string
	severity Severity
	fix      string
}

func (h *host) findings(ctx context.Context) []Finding {
	found := make([]Finding, len(questions))
	var wait sync.WaitGroup
	for i, q := range questions {
		wait.Go(func() { found[i] = q.finding(q.ask(ctx, h)) })
	}
	wait.Wait()
	return found
}

// finding joins the declared half and the half that depends on the host. A
// fine answer needs neither meaning nor fix.
func (q question) finding(r reply) Finding {
	f := Finding{Code: q.code, Title: q.title, Answer: r.answer, Probed: r.probed, Means: q.means, Severity: r.severity}
	if f.Severity == "" {
		switch {
		case r.answer == q.good:
			f.Severity = OK
		case r.answer == Unknown:
			f.Severity = q.unknown
		default:
			f.Severity = q.bad
		}
	}
	if f.Severity != OK {
		f.Fix = q.fix
		if r.fix != "" {
			f.Fix = r.fix
		}
	}
	return f
}

// Impossible says whether something makes the native driver impossible here.
func Impossible(findings []Finding) bool {
	for _, f := range findings {
		if f.Severity == Problem {
			return true
		}
	}
	return false
}
