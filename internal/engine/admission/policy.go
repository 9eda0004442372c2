package admission

import (
	"cmp"
	"fmt"

	"pinfold/internal/profile"
	"pinfold/sandbox"
)

// Policy is what the operator decides. A zero limit decides nothing:
// sandbox.DefaultLimits holds, and the limit's own range. A zero network lets nothing out.
type Policy struct {
	Default sandbox.Limits // of requests that ask for none
	Max     sandbox.Limits // the most that a request may ask for
	Network Network        // what requests may declare
	Gate    *sandbox.Gate  // what the output of every run is checked for, at least; nil: nothing
	// Profiles are those that requests can name.
	Profiles profile.Set
}

// Limits puts the operator's decisions over a request's limits. The defaults of
// time are for runs only: living sandboxes have their time to live.
func (p Policy) Limits(l sandbox.Limits, run bool) (sandbox.Limits, error) {
	for _, info := range sandbox.LimitTable() {
		ofTime := info.Unit == sandbox.UnitMilliseconds
		if l.Get(info.Field) == 0 && (run || !ofTime) {
			l.Set(info.Field, p.Default.Get(info.Field))
		}
	}
	l.CPUs = cmp.Or(l.CPUs, p.Default.CPUs)
	full := l.WithDefaults()
	for _, info := range sandbox.LimitTable() {
		asked, most := l.Get(info.Field), p.Max.Get(info.Field)
		switch {
		case most == 0:
		case asked > most:
			return l, overPolicy(info.Field, sandbox.FormatQuantity(asked, info.Unit), sandbox.FormatQuantity(most, info.Unit))
		case asked == 0 && full.Get(info.Field) > most && (run || info.Unit != sandbox.UnitMilliseconds):
			l.Set(info.Field, most)
		}
	}
	switch most := p.Max.CPUs; {
	case most == 0:
	case l.CPUs > most:
		return l, overPolicy("cpus", fmt.Sprint(l.CPUs), fmt.Sprint(most))
	case l.CPUs == 0:
		l.CPUs = min(full.CPUs, most)
	}
	return l, nil
}

func overPolicy(field, asked, most string) error {
	return &sandbox.Error{
		Code: sandbox.CodeLimitInvalid, Field: "limits." + field,
		Message: asked + " is more than this server allows", Hint: "ask for at most " + most,
	}
}

// Command holds what a command asks for against the operator's limits.
func (p Policy) Command(c sandbox.Command) error {
	for _, info := range sandbox.LimitTable() {
		asked := map[string]int64{"wall_time_ms": c.WallTimeMS, "output_bytes": c.OutputBytes}[info.Field]
		if most := p.Max.Get(info.Field); most > 0 && asked > most {
			err := overPolicy(info.Field, sandbox.FormatQuantity(asked, info.Unit), sandbox.FormatQuantity(most, info.Unit))
			return sandbox.AsError(err).WithField(info.Field)
		}
	}
	return nil
}
