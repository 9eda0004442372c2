// Package interpreter has the harnesses that run programs inside sandboxes and
// report their values, and the host's reading of what they report.
//
// A harness stands between an interpreter and a program, inside: a hostile
// program can do with it whatever it likes. So nothing that a harness enforces
// is a security boundary, and what it writes is read as the guest's word: it
// can add values to a result, and change nothing else.
package interpreter

import (
	"embed"
	"slices"
	"strings"
)

// Python's harness. Started as
//
//	python3 DIR/pinfold_harness.py [--imports=a,b] [--no-results] FILE ARGS
//
// it runs the program as "python3 FILE ARGS" would, but that what it prints is
// written line by line, as on a terminal. All files of the harness
// lie in DIR, and the results are written there. A program that has loaded
// other modules already and then forks may call run_main of the first file.
const (
	PythonHarness = "pinfold_harness.py"
	pythonRich    = "pinfold_rich.py"
	pythonHurry   = "pinfold_hurry.py"
	pythonLast    = "pinfold_last.py"
	pythonImports = "pinfold_imports.py"
)

// ResultsFile is the name of the file, beside the harness, into which results
// are written.
const ResultsFile = "results.jsonl"

//go:embed pinfold_harness.py pinfold_rich.py pinfold_hurry.py pinfold_last.py pinfold_imports.py
var files embed.FS

// PythonFiles are the names of the files that Python's harness consists of.
func PythonFiles() []string { return []string{PythonHarness, pythonLast, pythonRich, pythonHurry} }

// PythonLimiter are the names of the further files that limit imports.
func PythonLimiter() []string { return []string{pythonImports} }

// File returns the content of a harness's file. ok is false when there is none
// of that name.
func File(name string) (content []byte, ok bool) {
	content, err := files.ReadFile(name)
	return content, err == nil
}

// Options are the arguments before the program's file. imports limits what it
// may import, nil means no limit; report says whether values are wanted.
func Options(imports []string, report bool) []string {
	var options []string
	if imports != nil {
		names := slices.Clone(imports)
		slices.Sort(names)
		options = append(options, "--imports="+strings.Join(slices.Compact(names), ","))
	}
	if !report {
		options = append(options, "--no-results")
	}
	return options
}
