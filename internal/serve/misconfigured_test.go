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
	if found := Misconfigured(errors.New("alone")); len(found) != 1 {
		t.Fatalf("%+v", found)
	}
}
