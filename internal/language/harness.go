package language

import (
	"slices"

	"pinfold/internal/interpreter"
	"pinfold/sandbox"
)

// WithHarness returns the language with its harness in place, where it has one.
// imports are the only modules that the program may import; nil means all.
// report says whether the values that the program leaves are wanted.
//
// The error is a *sandbox.Error: imports cannot be limited in this language.
func (l Language) WithHarness(imports []string, report bool) (Language, error) {
	if imports != nil && l.Harness.Limiter == nil {
		return l, (&sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Field: "allowed_imports", Message: "imports cannot be limited in " + l.Title,
		}).WithAdvice(sandbox.Advise("%s; the sandbox holds the program without it", sandbox.Omit("allowed_imports")))
	}
	if l.Harness.Run == nil {
		return l, nil
	}
	at := slices.Index(l.Harness.Run, "{options}")
	l.Run = slices.Concat(l.Harness.Run[:at], interpreter.Options(imports, report), l.Harness.Run[at+1:])
	l.Support = slices.Concat(l.Support, l.Harness.Files)
	if imports != nil {
		l.Support = append(l.Support, l.Harness.Limiter...)
	}
	if report {
		l.results = true
	}
	return l, nil
}
