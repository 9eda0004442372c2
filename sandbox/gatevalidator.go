package sandbox

import (
	"cmp"
	"fmt"
)

// GateValidator is a program that judges an output as a whole: in a sandbox of its own,
// without a network, after all other checks. It reads stdout from its standard input, the
// artifacts below "artifacts", and what else came out from "output.json". Exit status 0
// lets the output pass; any other is its verdict, and the first line of its stderr the
// reason. Where it does not get as far as an exit status, the output is withheld.
type GateValidator struct {
	Language string `json:"language"`
	Code     string `json:"code"`
	// Limits are its own; a zero is ValidatorLimits'. MaxValidatorLimits bounds them.
	Limits Limits `json:"limits,omitzero"`
	// Action is what an exit status other than 0 means: GateWithhold, the default, or
	// GateFlag.
	Action GateAction `json:"action,omitempty"`
}

// Bounds on validators.
const (
	MaxGateValidators     = 4
	MaxGateValidatorBytes = 256 << 10 // of code
	MaxGateReason         = 200       // characters of a reason
)

// ValidatorLimits are those of a validator that asks for none.
func ValidatorLimits() Limits {
	return Limits{
		WallTimeMS: 10_000, CPUTimeMS: 10_000, MemoryBytes: 128 << 20, CPUs: 1, Processes: 32, DiskBytes: 64 << 20, Inodes: 4096,
		OutputBytes: 64 << 10, OpenFiles: 256, FileSizeBytes: 64 << 20,
	}
}

// MaxValidatorLimits are the most that a validator may ask for.
func MaxValidatorLimits() Limits {
	return Limits{
		WallTimeMS: 60_000, CPUTimeMS: 60_000, MemoryBytes: 1 << 30, CPUs: 4, Processes: 256, DiskBytes: 256 << 20, Inodes: 16_384,
		OutputBytes: 1 << 20, OpenFiles: 1024, FileSizeBytes: 256 << 20,
	}
}

// Bounded is v's limits with those that it does not ask for.
func (v GateValidator) Bounded() Limits {
	l, d := v.Limits, ValidatorLimits()
	l.CPUs = cmp.Or(l.CPUs, d.CPUs)
	for _, n := range []struct {
		of  *int64
		own int64
	}{
		{&l.WallTimeMS, d.WallTimeMS},
		{&l.CPUTimeMS, d.CPUTimeMS},
		{&l.MemoryBytes, d.MemoryBytes},
		{&l.Processes, d.Processes},
		{&l.DiskBytes, d.DiskBytes},
		{&l.Inodes, d.Inodes},
		{&l.OutputBytes, d.OutputBytes},
		{&l.OpenFiles, d.OpenFiles},
		{&l.FileSizeBytes, d.FileSizeBytes},
	} {
		*n.of = cmp.Or(*n.of, n.own)
	}
	return l
}

func (v GateValidator) validate(field string) error {
	switch {
	case v.Language == "":
		return specError(field+".language", "is missing").WithHint("name the validator's language, such as python")
	case v.Code == "":
		return specError(field+".code", "is missing").WithHint("give the validator's program as text")
	case len(v.Code) > MaxGateValidatorBytes:
		return tooLarge(field+".code", int64(len(v.Code)), MaxGateValidatorBytes)
	}
	l, most := v.Bounded(), MaxValidatorLimits()
	if err := l.Validate(); err != nil {
		e := AsError(err)
		return e.WithField(field + "." + e.Field)
	}
	if l.CPUs > most.CPUs {
		return &Error{Code: CodeLimitInvalid, Field: field + ".limits.cpus", Message: fmt.Sprintf("%g is more than a validator may have, %g", l.CPUs, most.CPUs)}
	}
	for _, n := range []struct {
		name      string
		of, bound int64
	}{
		{"wall_time_ms", l.WallTimeMS, most.WallTimeMS},
		{"cpu_time_ms", l.CPUTimeMS, most.CPUTimeMS},
		{"memory_bytes", l.MemoryBytes, most.MemoryBytes},
		{"processes", l.Processes, most.Processes},
		{"disk_bytes", l.DiskBytes, most.DiskBytes},
		{"inodes", l.Inodes, most.Inodes},
		{"output_bytes", l.OutputBytes, most.OutputBytes},
		{"open_files", l.OpenFiles, most.OpenFiles},
		{"file_size_bytes", l.FileSizeBytes, most.FileSizeBytes},
	} {
		if n.of > n.bound {
			return (&Error{Code: CodeLimitInvalid, Field: field + ".limits." + n.name, Message: fmt.Sprintf("%d is more than a validator may have, %d", n.of, n.bound)}).
				WithAdvice(Advise("give it at most %s", Set(field+".limits."+n.name, n.bound)))
		}
	}
	return checkGateAction(field+".action", v.Action, []GateAction{GateFlag, GateWithhold})
}
