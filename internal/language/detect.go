package language

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// maxFirstLine bounds what is looked at of a #! line, as the kernel does.
const maxFirstLine = 256

// Detect tells the language from a #! line, or else from the file's name. A
// first line that is none, or names an unknown interpreter, is ignored; more
// than the line may be given. The error is a *sandbox.Error of code
// language_unknown.
func Detect(filename string, firstLine []byte) (Language, error) {
	if name := interpreterOf(firstLine); name != "" {
		for _, l := range table {
			if slices.Contains(l.Interpreters, name) {
				return l, nil
			}
		}
	}
	ext := strings.ToLower(path.Ext(filename))
	if ext != "" {
		for _, l := range table {
			if slices.Contains(l.Extensions, ext) {
				return l, nil
			}
		}
	}
	e := (&sandbox.Error{Code: sandbox.CodeLanguageUnknown, Field: "language", Message: "the language is missing"}).
		WithAdvice(sandbox.Advise("name it, as in %s", sandbox.Set("language", "python")))
	if filename != "" {
		e.Message = fmt.Sprintf("cannot tell the language of \"%s\"", sandbox.SafeText(path.Base(filename), 60))
	}
	return Language{}, e
}

// interpreterOf returns the name of the program in a #! line, without its
// directory and version: "python" for "#!/usr/bin/env python3.11". It is empty
// when there is none.
func interpreterOf(line []byte) string {
	line = line[:min(len(line), maxFirstLine)]
	line, _, _ = bytes.Cut(line, []byte("\n"))
	command, ok := bytes.CutPrefix(line, []byte("#!"))
	if !ok {
		return ""
	}
	words := strings.Fields(string(command))
	if len(words) > 0 && path.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool {
			return strings.HasPrefix(w, "-") || strings.Contains(w, "=")
		})
	}
	if len(words) == 0 {
		return ""
	}
	return strings.TrimRight(path.Base(words[0]), "0123456789.")
}
