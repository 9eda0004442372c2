package cli

import (
	"path"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// unmatched lists the patterns that no file matched, where they ask for some. It is empty when that is
// not known: when the program was ended, or not every file was looked at.
func unmatched(r *sandbox.Result, patterns []string) []string {
	if r.Cause.Phase != "" || (r.Status != sandbox.StatusSucceeded && r.Status != sandbox.StatusFailed) {
		return nil
	}
	var names []string
	for _, a := range r.Artifacts {
		names = append(names, a.Path)
	}
	for _, s := range r.ArtifactsSkipped {
		if s.Path == "" { // an unknown number of others
			return nil
		}
		names = append(names, s.Path)
	}
	var none []string
	for _, p := range patterns {
		if p != everyFile && !slices.ContainsFunc(names, func(n string) bool { return matches(p, n) }) {
			none = append(none, p)
		}
	}
	return none
}

// matches says whether a pattern accepts a path as a sandbox does: each part as
// path.Match does, and "**" any number of directories. It only words messages.
func matches(pattern, name string) bool {
	parts, names := strings.Split(pattern, "/"), strings.Split(name, "/")
	at := make([]bool, len(parts)+1) // the places in the pattern that were reached
	at[0] = true
	for i := 0; ; i++ {
		for j, part := range parts { // "**" may match nothing
			at[j+1] = at[j+1] || (at[j] && part == "**")
		}
		if i == len(names) {
			return at[len(parts)]
		}
		next := make([]bool, len(at))
		for j, part := range parts {
			if ok, _ := path.Match(part, names[i]); at[j] && part != "**" && ok {
				next[j+1] = true
			}
			next[j] = next[j] || (at[j] && part == "**")
		}
		at = next
	}
}
