package engine_test

import (
	"strings"
	"testing"
	"time"

	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

// Who is refused for want of room is told of what, how much of it there is, how much
// is its own, and what helps; of other tenants nothing.
func TestBusyNamesTheResource(t *testing.T) {
	mib := int64(1) << 20
	for name, test := range map[string]struct {
		capacity    admission.Capacity
		quota       admission.Quota
		mine        sandbox.Limits
		asked       sandbox.Limits
		code, field string
		message     []string
		hint        string
	}{
		"cpus": {
			capacity: admission.Capacity{CPUs: 8}, mine: sandbox.Limits{CPUs: 3}, asked: sandbox.Limits{CPUs: 2},
			code: sandbox.CodeBusy, field: "limits.cpus", message: []string{"within 50ms", "capacity.cpus is 8", "have 3 ", "less than the 2 "}, hint: "raise capacity.cpus",
		},
		"memory": {
			capacity: admission.Capacity{MemoryBytes: 1024 * mib}, mine: sandbox.Limits{MemoryBytes: 512 * mib}, asked: sandbox.Limits{MemoryBytes: 300 * mib},
			code: sandbox.CodeBusy, field: "limits.memory_bytes", message: []string{"capacity.memory is 1GiB", "have 512MiB", "less than the 300MiB"}, hint: "raise capacity.memory",
		},
		"sandboxes": {
			capacity: admission.Capacity{Sandboxes: 2},
			code:     sandbox.CodeBusy, message: []string{"capacity.sandboxes is 2", "have 1 "}, hint: "raise capacity.sandboxes",
		},
		"quota": {
			quota: admission.Quota{CPUs: 4}, mine: sandbox.Limits{CPUs: 3}, asked: sandbox.Limits{CPUs: 2},
			code: sandbox.CodeQuotaExceeded, field: "limits.cpus", message: []string{"the tenant's quota of cpus is 4", "have 3 ", "needs 2"}, hint: "raise the tenant's quota",
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.capacity.QueueTimeout = 50 * time.Millisecond
			s := serve(t, engine.Options{Capacity: test.capacity, Quota: func(tenant string) admission.Quota {
				if tenant == "mine" {
					return test.quota
				}
				return admission.Quota{}
			}}, nil)
			if _, err := s.Create(soon(t), "mine", sandbox.Create{Limits: test.mine}); err != nil {
				t.Fatal(err)
			}
			rest := sandbox.Limits{CPUs: test.capacity.CPUs - test.mine.CPUs, MemoryBytes: 256 * mib}
			if test.capacity.MemoryBytes > 0 {
				rest.MemoryBytes = test.capacity.MemoryBytes - test.mine.MemoryBytes
			}
			if test.capacity.CPUs == 0 {
				rest.CPUs = 1
			}
			if _, err := s.Create(soon(t), "stranger", sandbox.Create{Limits: rest}); err != nil {
				t.Fatal(err)
			}
			_, err := s.Create(soon(t), "mine", sandbox.Create{Limits: test.asked})
			e := sandbox.AsError(err)
			if e == nil || e.Code != test.code || e.Field != test.field || !strings.Contains(e.Hint, test.hint) {
				t.Fatalf("%+v", e)
			}
			for _, part := range test.message {
				if !strings.Contains(e.Message, part) {
					t.Errorf("%q does not say %q", e.Message, part)
				}
			}
			if strings.Contains(e.Message, "stranger") {
				t.Errorf("%q speaks of another tenant", e.Message)
			}
		})
	}
}

// A demand that could never be met names the setting at fault: the server's, or the
// tenant's.
func TestWhatIsTooLargeAloneNamesTheSetting(t *testing.T) {
	const gib = int64(1) << 30
	for name, c := range map[string]struct {
		quota         admission.Quota
		message, hint string
	}{
		"capacity":           {admission.Quota{}, "more than capacity.memory, which is 1GiB", "raise capacity.memory"},
		"capacity and quota": {admission.Quota{MemoryBytes: gib / 2}, "more than capacity.memory, which is 1GiB", "raise capacity.memory"},
		"quota":              {admission.Quota{CPUs: 1}, "more cpus than the tenant may have", "raise the tenant's quota"},
	} {
		s := serve(t, engine.Options{Capacity: admission.Capacity{MemoryBytes: gib}, Quota: func(string) admission.Quota { return c.quota }}, nil)
		limits := sandbox.Limits{MemoryBytes: 2 * gib}
		if name == "quota" {
			limits = sandbox.Limits{CPUs: 2}
		}
		_, err := s.Create(soon(t), "mine", sandbox.Create{Limits: limits})
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeQuotaExceeded || !strings.Contains(e.Message, c.message) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
