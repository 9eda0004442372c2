package cli

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Bounds on what is looked at of a program's last words, for names of files.
const (
	lastWords = 4 << 10
	mostNames = 100
)

// forgotten is a file of this directory that a program, by its last words, did not find
// inside, as the flag that would have copied it in; or "". These words are the
// program's: they choose a hint, and nothing else.
func forgotten(stderr string, given []runs.Input) string {
	stderr = stderr[max(0, len(stderr)-lastWords):]
	lines, names := strings.Split(stderr, "\n"), 0
	for _, line := range slices.Backward(lines) {
		if !speaksOfMissing(line) {
			continue
		}
		quoted, plain := namesIn(line)
		for i, name := range append(quoted, plain...) {
			if names++; names > mostNames {
				return ""
			}
			if flag := flagForHere(name, i < len(quoted), given); flag != "" {
				return flag
			}
		}
	}
	return ""
}

// speaksOfMissing knows what the languages say of a file that there is not.
func speaksOfMissing(line string) bool {
	return strings.Contains(line, "o such file") || strings.Contains(line, "NoSuchFileException")
}

// namesIn are the parts of a message that may be names: what stands between quotes, and
// every word.
func namesIn(line string) (quoted, plain []string) {
	for i, part := range strings.FieldsFunc(" "+line, func(r rune) bool { return strings.ContainsRune("'\"`‘’", r) }) {
		if i > 0 && strings.TrimSpace(part) == part {
			quoted = append(quoted, part)
		}
	}
	return quoted, strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t:(),;'\"`‘’", r) })
}

// flagForHere is the flag that copies in what has this name here, "" where there is no
// such thing, or nothing that could be meant. Of words only a file is.
func flagForHere(name string, quoted bool, given []runs.Input) string {
	name = strings.TrimPrefix(name, "./")
	if name == "" || name[0] == '-' || strings.Contains(name, ":") || path.Clean(name) != name || name == "." ||
		!filepath.IsLocal(name) || sandbox.CheckGuestPath("", name) != nil || sandbox.SafeText(name, 120) != name {
		return ""
	}
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() && (!quoted || !info.IsDir()) {
		return ""
	}
	if slices.ContainsFunc(given, func(in runs.Input) bool { return in.Path == name }) { // it was there
		return ""
	}
	flag := name
	if path.Base(name) != name {
		flag += ":" + name // a copy goes under its last name
	}
	return "--file " + shellQuote(flag)
}
