package planner

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
)

// What is weaker than namespaces is taken only where somebody names it or its level, and
// where nothing stronger can make the machine.
func TestLevels(t *testing.T) {
	blocked := func(r *driver.Report) {
		r.Blocked = &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "not here"}
	}
	for _, test := range []struct {
		name, driver, isolation string
		blocked                 bool // the strong one
		want, code, field, says string
	}{
		{name: "nothing is asked for", want: "strong"},
		{name: "nothing is asked for, and the strong one cannot", blocked: true, code: sandbox.CodeDriverUnavailable, says: "not here"},
		{name: "the lowest level", isolation: sandbox.LevelProcess, want: "strong"},
		{name: "the lowest level, and the strong one cannot", isolation: sandbox.LevelProcess, blocked: true, want: "weak"},
		{name: "the level that is usual, and the strong one cannot", isolation: sandbox.LevelNamespace, blocked: true, code: sandbox.CodeRequirementUnmet, says: "not here"},
		{name: "by name", driver: "weak", want: "weak"},
		{name: "by name, and that cannot", driver: "strong", blocked: true, code: sandbox.CodeRequirementUnmet, field: "driver", says: "not here"},
		{name: "by name and level", driver: "weak", isolation: sandbox.LevelProcess, want: "weak"},
		{name: "by name, below the level", driver: "weak", isolation: sandbox.LevelNamespace, code: sandbox.CodeRequirementUnmet, says: "the weak driver's level of isolation is process"},
		{name: "a level that no driver has", isolation: sandbox.LevelVM, code: sandbox.CodeRequirementUnmet, says: "at least vm"},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := 0
			strong := fake.Options{Name: "strong"}
			if test.blocked {
				strong.Report = blocked
			}
			weak := fake.Options{Name: "weak", Level: sandbox.LevelProcess, Report: func(*driver.Report) { asked++ }}
			p := New([]driver.Driver{fake.New(strong), fake.New(weak)}, imagetest.Templates, nil)
			spec := sandbox.Spec{Code: "x", Driver: test.driver, Isolation: test.isolation}.WithDefaults()
			d, plan, err := p.Plan(t.Context(), spec.Machine(), "id")
			if test.isolation != sandbox.LevelProcess && test.driver == "" && asked > 0 {
				t.Error("the weak one was asked")
			}
			if test.code == "" {
				if err != nil || d.Name() != test.want || plan.Posture.Driver != test.want {
					t.Fatalf("%v, %v", d, err)
				}
				return
			}
			if e := sandbox.AsError(err); err == nil || e.Code != test.code || !strings.Contains(e.Message, test.says) || test.field != "" && e.Field != test.field {
				t.Errorf("%+v", err)
			}
		})
	}
}

// More open files than this process may have are refused beforehand, with how many there may
// be; a virtual machine's kernel has a limit of its own.
func TestFewerFilesThanAskedFor(t *testing.T) {
	l := syscall.Rlimit{Cur: 1024, Max: 1024}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil { // this process' for good
		t.Fatal(err)
	}
	own := fake.New(fake.Options{Name: "own", Level: sandbox.LevelVM})
	host := fake.New(fake.Options{Name: "host"})
	spec := sandbox.Spec{Code: "x", Limits: sandbox.Limits{OpenFiles: int64(l.Max)}}.WithDefaults() //nolint:gosec // just compared
	if _, _, err := New([]driver.Driver{host}, imagetest.Templates, nil).Plan(t.Context(), spec.Machine(), "id"); err != nil {
		t.Errorf("as many as there are: %v", err)
	}
	spec.Limits.OpenFiles++
	_, _, err := New([]driver.Driver{host}, imagetest.Templates, nil).Plan(t.Context(), spec.Machine(), "id")
	e := sandbox.AsError(err)
	if err == nil || e.Code != sandbox.CodeLimitInvalid || e.Field != "limits.open_files" || !strings.Contains(e.Hint, fmt.Sprintf(`{"open_files": %d}`, l.Max)) {
		t.Errorf("%+v", e)
	}
	d, plan, err := New([]driver.Driver{host, own}, imagetest.Templates, nil).Plan(t.Context(), spec.Machine(), "id")
	if err != nil || d.Name() != "own" || plan.Posture.Driver != "own" {
		t.Errorf("a virtual machine: %v %+v %v", d, plan.Posture, err)
	}
	other := fake.New(fake.Options{Name: "other"})
	weak := fake.New(fake.Options{Name: "weak", Level: sandbox.LevelProcess})
	spec.Isolation = sandbox.LevelNamespace
	for _, drivers := range [][]driver.Driver{{host, other}, {host, weak}} {
		_, _, err := New(drivers, imagetest.Templates, nil).Plan(t.Context(), spec.Machine(), "id")
		if e := sandbox.AsError(err); err == nil || e.Code != sandbox.CodeLimitInvalid || e.Field != "limits.open_files" {
			t.Errorf("%+v", e)
		}
	}
}
