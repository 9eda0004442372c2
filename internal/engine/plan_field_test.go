package engine_test

import (
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// A requirement that comes with another field is told as that field's.
func TestRequirementOfAnotherFieldNamesIt(t *testing.T) {
	d := fake.New(fake.Options{Report: func(r *driver.Report) {
		for i := range r.Findings {
			if f := &r.Findings[i]; f.Feature == sandbox.FeatureMemory {
				f.Answer, f.Because = driver.No, "the script says so"
			}
		}
	}})
	s := serve(t, engine.Options{Drivers: []driver.Driver{d}}, nil)
	for _, c := range []struct {
		create sandbox.Create
		field  string
	}{
		{sandbox.Create{OnOutOfMemory: sandbox.OutOfMemoryProcess}, "on_out_of_memory"},
		{sandbox.Create{OnOutOfMemory: sandbox.OutOfMemoryProcess, Require: []string{sandbox.FeatureOutput}}, "on_out_of_memory"},
		{sandbox.Create{OnOutOfMemory: sandbox.OutOfMemoryProcess, Require: []string{sandbox.FeatureMemory}}, "require[0]"},
	} {
		_, err := s.Create(soon(t), "alice", c.create)
		if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeRequirementUnmet || e.Field != c.field {
			t.Errorf("%+v: %+v", c.create, e)
		}
	}
}
