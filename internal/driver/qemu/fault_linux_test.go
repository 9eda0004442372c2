//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// impostor is a driver whose QEMU is a Python program.
func impostor(t *testing.T, program string) *Driver {
	t.Helper()
	o := options(t)
	o.Program, o.cold, o.patient = "/usr/bin/python3", true, 5*time.Second
	o.argv = func(launch) []string { return []string{"python3", "-S", "-c", preamble + program} }
	ledger.Check(t, o.StateDir)
	return open(t, o)
}

// preamble has what programs need that speak in a warden's place.
const preamble = `
import os, sys, json, time
def say(**m): os.write(3, json.dumps(m).encode() + b"\n")
lines = os.fdopen(3, "rb", closefd=False)
def heard(): return json.loads(lines.readline())
def made():
    say(hello={"version": 2})
    say(id=heard()["id"], report={})
    say(id=heard()["id"])
`

func planOf(t *testing.T, l sandbox.Limits) driver.Plan {
	t.Helper()
	p, err := driver.MakePlan(sandbox.Spec{Code: "x", Limits: l}.WithDefaults().Machine(), imagetest.Host(t), driver.Report{Driver: Name, Level: sandbox.LevelVM}, fmt.Sprintf("t%d", time.Now().UnixNano()%1e12))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A QEMU or a machine that does not do what it should is an error that says what, and
// leaves nothing.
func TestBadMachines(t *testing.T) {
	for what, c := range map[string]struct{ program, says string }{
		"dies":                 {`sys.exit("no such machine type")`, "no such machine type"},
		"is killed":            {`os.kill(os.getpid(), 9); time.sleep(60)`, "said nothing"}, // process 1 of a pid namespace cannot
		"says nothing":         {`time.sleep(60)`, "said nothing"},
		"fills its console":    {"while True: print('x' * 1000)", "said nothing"},
		"speaks garbage":       {`os.write(3, b"\xff\x00garbage\n"); time.sleep(60)`, "no message"},
		"never ends a line":    {`while True: os.write(3, b"x" * 65536)`, "in a line"},
		"is of another age":    {`say(hello={"version": 99}); time.sleep(60)`, "version 99"},
		"ends after its hello": {`say(hello={"version": 2}); heard(); print("kernel panic"); sys.exit(3)`, "kernel panic"},
		"reports nothing":      {`say(hello={"version": 2}); say(id=heard()["id"]); time.sleep(60)`, "reports nothing"},
		"answers another":      {`say(hello={"version": 2}); heard(); say(id=77, report={}); time.sleep(60)`, "said nothing"},
		"makes no sandbox":     {`say(hello={"version": 2}); say(id=heard()["id"], report={}); say(id=heard()["id"], error={"code": "setup_failed", "message": "no room inside"}); time.sleep(60)`, "no room inside"},
	} {
		t.Run(what, func(t *testing.T) {
			d := impostor(t, c.program)
			m, err := d.Create(t.Context(), planOf(t, sandbox.Limits{}))
			if err == nil {
				_ = m.Destroy(t.Context())
				t.Fatal("it is taken for a machine")
			}
			e := new(sandbox.Error)
			if !errors.As(err, &e) || e.Code != sandbox.CodeSetupFailed || !strings.Contains(e.Message, c.says) || len(e.Message) > 8000 {
				t.Errorf("%.3000s", err)
			}
		})
	}
}

// What goes wrong with a machine later is its death, with the host's evidence, and no
// answer is waited for longer than somebody wants to.
func TestMachinesThatGoBad(t *testing.T) {
	for what, c := range map[string]struct {
		program string
		kind    driver.DeathKind
		says    string
	}{
		"dies":            {`print("assertion failed"); sys.exit(1)`, driver.DeathAgent, "assertion failed"},
		"speaks garbage":  {`os.write(3, b"{]\n"); time.sleep(60)`, driver.DeathAgent, "made no sense"},
		"is full of it":   {`while True: os.write(3, b"[" * 65536)`, driver.DeathAgent, "made no sense"},
		"lies":            {`say(death={"Kind": "destroyed", "Evidence": "x" * 9000}); time.sleep(60)`, driver.DeathAgent, "xxx"},
		"has no memory":   {`say(death={"Kind": "memory", "Evidence": "killed 1"}); time.sleep(60)`, driver.DeathMemory, "killed 1"},
		"eats the host's": {"x = []\nwhile True: x.append(bytearray(os.urandom(1 << 12)) * 1024)", driver.DeathMemory, "the host's out-of-memory killer"},
	} {
		t.Run(what, func(t *testing.T) {
			d := impostor(t, "made()\ntime.sleep(.3)\n"+c.program)
			m, err := d.Create(t.Context(), planOf(t, sandbox.Limits{MemoryBytes: 16 << 20, DiskBytes: 16 << 20}))
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-m.Dead():
			case <-time.After(time.Minute):
				t.Error("it lives")
			}
			if err := m.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			if death := m.Death(); death.Kind != c.kind || !strings.Contains(death.Evidence, c.says) || len(death.Evidence) > 4000 {
				t.Errorf("%+v", death)
			}
		})
	}
}

// A machine that tells what cannot be, or nothing, does no harm.
func TestReadingsOfABadMachine(t *testing.T) {
	d := impostor(t, `made()
say(id=heard()["id"], usage={"CPUNanos": -5, "MemoryBytes": 1 << 62, "Killed": "\x1b[2J" + "k" * 900, "Denied": [{"name": "d" * 900, "count": 1}] * 150})
say(id=heard()["id"])
time.sleep(60)`)
	m, err := d.Create(t.Context(), planOf(t, sandbox.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Destroy(t.Context())
	u, err := m.Usage(t.Context())
	if err != nil || u.CPUNanos != 0 || len(u.Killed) > 200 || strings.Contains(u.Killed, "\x1b") || len(u.Denied) > maxDenied || len(u.Denied[0].Name) > 200 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := m.Usage(t.Context()); err == nil || errors.Is(err, driver.ErrEnded) {
		t.Errorf("a reading without numbers: %v", err)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, enough)
	defer cancel()
	if _, err := m.Usage(ctx); !errors.Is(err, enough) {
		t.Errorf("a machine that does not answer: %v", err)
	}
	if err := m.Abilities().Pauser.Pause(ctx); err == nil {
		t.Error("a machine that does not answer is paused")
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// Without a QEMU, a kernel or its modules the report says what to do.
func TestBlocked(t *testing.T) {
	good := options(t)
	for what, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"no QEMU":             {func(o *Options) { o.Program = "/usr/bin/nothing" }, "there is no QEMU"},
		"QEMU elsewhere":      {func(o *Options) { o.Program = "/etc/passwd" }, "below /usr"},
		"no kernel":           {func(o *Options) { o.Kernel = "/boot/nothing" }, "cannot be read"},
		"a directory":         {func(o *Options) { o.Kernel = "/usr" }, "no kernel image"},
		"no modules":          {func(o *Options) { o.Modules = t.TempDir() }, "cannot be booted"},
		"no warden":           {func(o *Options) { o.Warden = func() ([]byte, error) { return nil, errors.New("no warden here") } }, "no warden here"},
		"what is no kernel":   {func(o *Options) { o.Kernel = "/usr/bin/python3"; o.patient = 5 * time.Second }, "cannot be used here"},
		"a warden that is no": {func(o *Options) { o.Warden = o.Agent; o.patient = 20 * time.Second }, "cannot be used here"},
	} {
		t.Run(what, func(t *testing.T) {
			o := good
			c.change(&o)
			r, err := open(t, o).Probe(t.Context(), imagetest.Host(t))
			if err != nil || r.Blocked == nil {
				t.Fatalf("%+v, %v", r, err)
			}
			if e := r.Blocked; e.Code != sandbox.CodeDriverUnavailable || e.Hint == "" || !strings.Contains(e.Message, c.says) {
				t.Errorf("%.2000s (%s)", e.Message, e.Hint)
			}
		})
	}
}
