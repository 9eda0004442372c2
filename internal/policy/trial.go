package policy

import (
	"time"

	"pinfold/sandbox"
)

// Past is a run that was.
type Past struct {
	ID        string
	CreatedAt time.Time
	Facts     Facts
}

// Try says what a policy would have done to runs that were.
func (p *Policy) Try(past []Past) sandbox.PolicyReport {
	r := sandbox.PolicyReport{Digest: p.digest, Runs: len(past), Rules: []sandbox.PolicyRuleCount{}, Touched: []sandbox.PolicyTouched{}}
	count := map[string]int{}
	for _, run := range past {
		f := run.Facts
		unscanned := f.Seen == nil && p.Looks(f)
		if unscanned {
			r.Unscanned++
		}
		o := p.Judge(f, Asked{Isolation: f.Isolation, Least: f.Isolation, Network: sandbox.Network{Endpoints: f.Endpoints}, Limits: f.Limits})
		switch {
		case o.Refused != nil:
			r.Refused++
		case len(o.Asks) > 0:
			r.Asked++
		case o.Changed:
			r.Changed++
		}
		for _, m := range o.Result.Rules {
			count[m.Rule]++
		}
		if len(o.Result.Rules) > 0 {
			r.Touched = append(r.Touched, sandbox.PolicyTouched{Run: run.ID, Tenant: f.Tenant, CreatedAt: run.CreatedAt, Unscanned: unscanned, Rules: o.Result.Rules})
		}
	}
	for _, id := range p.Rules() {
		r.Rules = append(r.Rules, sandbox.PolicyRuleCount{Rule: id, Matched: count[id]})
	}
	return r
}
