package serve

import (
	"errors"
	"testing"
)

// Each thing that is wrong in a configuration is a finding of its own.
func TestMisconfigured(t *testing.T) {
	found := Misconfigured(errors.Join(errors.New("one"), errors.Join(errors.New("two"), errors.New("three"))))
	if len(found) != 3 || found[0].OK || found[2].Detail != "three" {
		t.Fatalf("%+v", found)
	}
	many := make([]error, 100)
	for i := range many {
		many[i] = errors.New("one of many")
	}
	if found := Misconfigured(errors.Join(errors.Join(many...), errors.New("last"))); len(found) != maxWrong+1 || found[maxWrong].OK {
		t.Errorf("%d findings", len(found))
	}
	if found := Misconfigured(errors.New("alone")); len(found) != 1 {
		t.Fatalf("%+v", found)
	}
}
