package admission

import (
	"encoding/json"
	"strings"

	"pinfold/sandbox"
)

// Most is the most that a request may ask for, by whoever bounds it.
type Most []bound

type bound struct {
	limits sandbox.Limits // a zero field bounds nothing
	whose  func(field string) sandbox.Fix
}

// Most is what the operator's limits, the profile that a request names and the rules that
// matched it leave of what may be asked for.
func (p Policy) Most(profile string, ruled *sandbox.PolicyResult) Most {
	m := Most{{p.Max, func(field string) sandbox.Fix { return sandbox.Config("limits.max." + field) }}}
	if profile != "" {
		m = m.And(p.Profiles.Limits(profile), "the profile "+profile)
	}
	if ruled != nil {
		m = m.And(ruled.Limits, "the operator's policy")
	}
	return m
}

// And is what somebody's limits leave of it.
func (m Most) And(limits sandbox.Limits, whose string) Most {
	return append(m, bound{limits, func(string) sandbox.Fix { return sandbox.Text(whose) }})
}

// of is the most of one limit, 0 for none, and who says so.
func (m Most) of(field string) (most int64, whose sandbox.Fix) {
	for _, b := range m {
		if v := b.limits.Get(field); v > 0 && (most == 0 || v < most) {
			most, whose = v, b.whose(field)
		}
	}
	return most, whose
}

// Advice is advice that names no value which would be refused, to who has these limits: a
// higher one becomes the most, and where that is what they have, what else can be done.
func (m Most) Advice(a sandbox.Advice, has sandbox.Limits) sandbox.Advice {
	var held sandbox.Advice
	for _, f := range a {
		held = append(held, m.fix(f, has)...)
	}
	return held
}

func (m Most) fix(f sandbox.Fix, has sandbox.Limits) sandbox.Advice {
	for _, info := range sandbox.LimitTable() {
		var wanted int64
		if f.Kind != sandbox.FixSet || strings.TrimPrefix(f.Name, "limits.") != info.Field || json.Unmarshal(f.Value, &wanted) != nil {
			continue
		}
		switch most, whose := m.of(info.Field); {
		case most == 0 || wanted <= most:
		case has.Get(info.Field) < most:
			return sandbox.Advice{sandbox.Set(f.Name, most)}
		default:
			return sandbox.Advise(sandbox.FormatQuantity(most, info.Unit)+" is the most that %s allows; or "+instead[info.Field], whose)
		}
	}
	return sandbox.Advice{f}
}

// instead is what a program can do that may have no more of a limit.
var instead = map[string]string{
	"wall_time_ms":    "do the work in several runs",
	"cpu_time_ms":     "do the work in several runs",
	"memory_bytes":    "have the program work on less at a time",
	"processes":       "have the program start fewer at a time",
	"disk_bytes":      "have the program write less, and remove what it is done with",
	"inodes":          "have the program make fewer files, and remove those that it is done with",
	"output_bytes":    "have the program write it to a file, and take that out",
	"open_files":      "have the program close what it is done with",
	"file_size_bytes": "have the program write several files",
}

// Cause is Advice for the end of a program.
func (m Most) Cause(c sandbox.Cause, has sandbox.Limits) sandbox.Cause {
	if c.Advice == nil {
		return c
	}
	return c.WithAdvice(m.Advice(c.Advice, has))
}

// Error is Advice for an error.
func (m Most) Error(err error, has sandbox.Limits) error {
	e := sandbox.AsError(err)
	if e == nil || e.Advice == nil {
		return err
	}
	held := m.Advice(e.Advice, has)
	if held.Say(sandbox.Fix.JSON) == e.Advice.Say(sandbox.Fix.JSON) {
		return err // with what is around it
	}
	return e.WithAdvice(held)
}
