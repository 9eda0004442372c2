package cli

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

// TestLivingLimitsNameCreate: exec has no --memory, and its hints once named it.
func TestLivingLimitsNameCreate(t *testing.T) {
	for _, c := range []struct {
		cause sandbox.Cause
		over  bool
		want  string
	}{
		{
			sandbox.Cause{Kind: sandbox.CauseMemory, Limit: 256 << 20, Observed: 256 << 20}.WithAdvice(raise("limits.memory_bytes", 512<<20)),
			true,
			"killed: memory limit 256MiB reached (observed 256MiB); the sandbox ended with it. Hint: pinfold create --memory 512MiB",
		},
		{
			sandbox.Cause{Kind: sandbox.CauseDisk, Limit: 1 << 20, Observed: 1 << 20}.WithAdvice(raise("limits.disk_bytes", 2<<20)),
			false,
			"killed: disk limit 1MiB reached (observed 1MiB). Hint: pinfold create --disk 2MiB",
		},
		{
			sandbox.Cause{Kind: sandbox.CauseWallTime, Limit: 200, Observed: 210}.WithAdvice(raise("wall_time_ms", 400)),
			false,
			"killed: wall time limit 200ms reached (observed 210ms). Hint: --timeout 400ms",
		},
		{
			sandbox.Cause{Kind: sandbox.CauseMemory, Limit: 1 << 42, Observed: 1 << 42},
			false,
			"killed: memory limit 4TiB reached (observed 4TiB)",
		},
		{
			sandbox.Cause{Kind: sandbox.CauseTTL, Limit: 1000, Evidence: "the sandbox ended: it lived 1000ms"},
			false,
			"killed: the sandbox ended: it lived 1000ms",
		},
		{sandbox.Cause{Kind: sandbox.CauseExited}, false, ""},
	} {
		a := &app{}
		s := flagWords{a.execCommand().Flags(), "exec"}
		p := sandbox.Process{Status: sandbox.StatusKilled, Cause: &c.cause}
		if got := s.livingEnding(p, c.over); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		before := c.cause.Hint
		if in := s.process(p); before != "" && !strings.HasSuffix(c.want, "Hint: "+in.Cause.Hint) {
			t.Errorf("%s: hint %q", c.cause.Kind, in.Cause.Hint)
		}
		if c.cause.Hint != before {
			t.Error("the caller's cause was changed")
		}
	}
	logs := flagWords{(&app{}).logsCommand().Flags(), "logs"}
	if got := logs.cause(sandbox.Cause{Limit: 200}.WithAdvice(raise("wall_time_ms", 400))).Hint; got != "pinfold exec --timeout 400ms" {
		t.Errorf("logs: %q", got)
	}
	if got := logs.cause(sandbox.Cause{Limit: 200}.WithAdvice(raise("ttl_ms", 400))).Hint; got != "pinfold create --ttl 400ms" {
		t.Errorf("logs: %q", got)
	}
}

func raise(field string, to int64) sandbox.Advice {
	return sandbox.Advise("raise it: %s", sandbox.Set(field, to))
}
