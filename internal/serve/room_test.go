package serve

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/config"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/probe"
	"pinfold/sandbox"
)

// Check asks about what is configured, waiting pools included; what is certainly
// too little is not well, and what may be is said.
func TestCheckOfRoom(t *testing.T) {
	c := configure(t)
	c.Capacity.Sandboxes, c.Capacity.CPUs = 500, 8
	c.Pools = []config.Pool{{Name: "a", Min: 10}, {Name: "b", Min: 3}}
	var asked probe.Demand
	o := Options{NewEngine: fakeEngine(nil), Room: func(d probe.Demand) []probe.Finding {
		asked = d
		return []probe.Finding{
			{Title: "descriptors", Severity: probe.Warning, Probed: "513 need 2352", Means: "fails at 100", Fix: "ulimit -n 2352"},
			{Title: "memory", Severity: probe.Info, Probed: "limits add up", Means: "well unless", Fix: "capacity.memory: 1MiB"},
		}
	}}
	found := map[string]Finding{}
	for _, f := range Check(t.Context(), c, o) {
		found[f.What] = f
	}
	if asked.Sandboxes != 513 || asked.Processes != 64 || asked.Memory != 500*256<<20 {
		t.Errorf("asked about %+v", asked)
	}
	if f := found["capacity: descriptors"]; f.OK || f.Fix != "ulimit -n 2352" || !strings.Contains(f.Detail, "fails at 100") {
		t.Errorf("%+v", f)
	}
	if f := found["capacity: memory"]; !f.OK || f.Fix == "" {
		t.Errorf("%+v", f)
	}
	if f := found["capacity: capacity.cpus ends before capacity.sandboxes"]; !f.OK || !strings.Contains(f.Detail, "8 sandboxes") || !strings.Contains(f.Fix, "capacity.cpus: 500") {
		t.Errorf("%+v", f)
	}
	c.Capacity.CPUs = 0
	for _, f := range Check(t.Context(), c, o) {
		if strings.Contains(f.What, "ends before") {
			t.Errorf("nothing but sandboxes was given: %+v", f)
		}
	}
}

// A server whose configuration names drivers says in its log which cannot work here: whoever
// enabled one would hear of it from the first request otherwise.
func TestDriversThatCannotWorkAreSaid(t *testing.T) {
	broken := fakeEngineWith(fake.Options{Report: func(r *driver.Report) {
		r.Blocked = (&sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "there is no such program"}).WithHint("install it")
	}})
	const said = `msg="a driver cannot work here" driver=fake error="there is no such program" fix="install it"`
	c := configure(t)
	c.Drivers.QEMU.Enabled = true
	r := start(t, c, Options{NewEngine: broken})
	for deadline := time.Now().Add(time.Minute); !strings.Contains(r.log.String(), said); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing is said of it:\n%s", r.log)
		}
	}
	plain := start(t, configure(t), Options{NewEngine: broken})
	plain.signals <- syscall.SIGTERM
	if err := plain.wait(); err != nil || strings.Contains(plain.log.String(), "cannot work here") {
		t.Errorf("control: none is named: %v\n%s", err, plain.log)
	}
}
