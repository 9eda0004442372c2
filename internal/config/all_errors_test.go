package config

import (
	"strings"
	"testing"
)

// All that is wrong is said at once, and sizes as people write them.
func TestValidateSaysAllThatIsWrong(t *testing.T) {
	c := Default()
	c.Capacity.Memory = 1 << 20
	c.Capacity.Sandboxes = -1
	c.Log.Level = "loud"
	err := c.Validate()
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{"1MiB is outside 8MiB to", "capacity.sandboxes", "loud"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}
