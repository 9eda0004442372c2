package telemetry

import (
	"net/http"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// other stands for every value that is not in a closed set.
const other = "other"

// limitCauses are the causes that name a limit.
func limitCauses() []sandbox.CauseKind {
	return []sandbox.CauseKind{
		sandbox.CauseWallTime, sandbox.CauseCPUTime, sandbox.CauseMemory, sandbox.CauseProcesses, sandbox.CauseDisk,
		sandbox.CauseInodes, sandbox.CauseOutput, sandbox.CauseOpenFiles, sandbox.CauseFileSize, sandbox.CauseTTL, sandbox.CauseIdle,
	}
}

func namesLimit(c sandbox.CauseKind) bool { return slices.Contains(limitCauses(), c) }

func causeLabel(c sandbox.CauseKind) string {
	switch c {
	case sandbox.CauseExited, sandbox.CauseSignaled, sandbox.CauseSyscall, sandbox.CauseCancelled, sandbox.CauseLost, sandbox.CauseDestroyed:
		return string(c)
	}
	if namesLimit(c) {
		return string(c)
	}
	return other
}

func statusLabel(s sandbox.Status) string {
	switch s {
	case sandbox.StatusSucceeded, sandbox.StatusFailed, sandbox.StatusKilled, sandbox.StatusError:
		return string(s)
	}
	return other
}

func denialLabel(r sandbox.DenialReason) string {
	if slices.Contains(sandbox.DenialReasons(), r) {
		return string(r)
	}
	return other
}

// codeLabel accepts what looks like one of our codes; they come from our own
// constants, but a driver could have made one up.
func codeLabel(code string) string {
	const longest = 40
	if code == "" || len(code) > longest || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return other
	}
	return code
}

// methodLabel keeps the methods that have a meaning (RFC 9110, RFC 5789):
// anything may stand in a request.
func methodLabel(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return other
}

// routeLabel is the pattern that matched, without the method: "/v1/runs/{id}".
// Patterns are written in our own code.
func routeLabel(pattern string) string {
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		pattern = rest
	}
	if pattern == "" {
		return other
	}
	return pattern
}

// classLabel is the class of a status: "2xx".
func classLabel(status int) string {
	if status < 100 || status > 599 {
		return other
	}
	return string(rune('0'+status/100)) + "xx"
}
