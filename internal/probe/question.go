//go:build linux

package probe

import (
	"context"
	"sync"
)

// Run asks every question, in the order of the table. self is our program's file, which
// fixes name. It takes about a tenth of a second; when ctx ends, what is not known yet
// is "could not tell".
func Run(ctx context.Context, self string) []Finding {
	return realHost(ctx, self).findings(ctx)
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
		switch r.answer {
		case q.good:
			f.Severity = OK
		case Unknown:
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
