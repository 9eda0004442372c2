package admission

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pinfold/internal/profile"
	"pinfold/sandbox"
)

// No advice about any limit names a value that would be refused, whoever bounds it; where
// there is no more to be had, it says whose word that is, and what else can be done.
func TestAdviceStaysWithinTheMost(t *testing.T) {
	set := profile.Set{}
	if err := set.Add(profile.Entry{Profile: sandbox.Profile{Name: "small", Language: "shell", Limits: sandbox.Limits{MemoryBytes: 48 << 20}}}); err != nil {
		t.Fatal(err)
	}
	for _, info := range sandbox.LimitTable() {
		var most, less sandbox.Limits
		most.Set(info.Field, info.Min+10)
		less.Set(info.Field, info.Min+5)
		m := Policy{Max: most, Profiles: set}.Most("", nil)
		wants := sandbox.Advise("more: %s", sandbox.Set("limits."+info.Field, info.Min+20))
		var got int64
		f, ok := m.Advice(wants, less).Find(sandbox.FixSet)
		if err := json.Unmarshal(f.Value, &got); !ok || err != nil || got != info.Min+10 {
			t.Errorf("%s: %+v %v", info.Field, f, err)
		}
		none := m.Advice(wants, most)
		f, ok = none.Find(sandbox.FixConfig)
		if _, named := none.Find(sandbox.FixSet); named || !ok || f.Name != "limits.max."+info.Field || strings.HasSuffix(none.String(), "or ") {
			t.Errorf("%s: %s", info.Field, none)
		}
		if fits := sandbox.Advise("%s", sandbox.Set("limits."+info.Field, info.Min+10)); m.Advice(fits, less).String() != fits.String() {
			t.Errorf("%s: what fits was changed", info.Field)
		}
	}
	p := Policy{Max: sandbox.Limits{MemoryBytes: 96 << 20}, Profiles: set}
	has := sandbox.Limits{MemoryBytes: 48 << 20}
	c := sandbox.Cause{}.WithAdvice(sandbox.Advise("%s", sandbox.Set("limits.memory_bytes", 192<<20)))
	for want, m := range map[string]Most{
		`"limits": {"memory_bytes": 100663296}`:                                                           p.Most("", nil),
		"48MiB is the most that the profile small allows; or have the program work on less at a time":     p.Most("small", nil),
		"48MiB is the most that the operator's policy allows; or have the program work on less at a time": p.Most("", &sandbox.PolicyResult{Limits: has}),
		`"limits": {"memory_bytes": 67108864}`:                                                            p.Most("", &sandbox.PolicyResult{Limits: sandbox.Limits{MemoryBytes: 64 << 20}}),
		`"limits": {"memory_bytes": 201326592}`:                                                           Policy{}.Most("", nil),
	} {
		if got := m.Cause(c, has).Hint; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	retry := Busy(sandbox.CodeBusy, "full", "come back", 1)
	for _, err := range []error{nil, errors.New("x"), retry} {
		if got := p.Most("", nil).Error(err, has); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}
