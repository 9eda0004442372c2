package build

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// hostSources are the lines of the host's apt that have packages of a suite, of its
// updates and of its security updates, in apt's one-line form, but for those that hold a
// password. Where the host has none, mmdebstrap takes Debian's own mirror.
func hostSources(suite string) ([]string, error) { return sourcesBelow("/etc/apt", suite) }

func sourcesBelow(dir, suite string) ([]string, error) {
	files := []string{filepath.Join(dir, "sources.list")}
	for _, ending := range []string{"*.list", "*.sources"} {
		more, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", ending)) // the pattern is a good one
		files = append(files, more...)
	}
	var lines []string
	for _, name := range files {
		text, err := readSources(name)
		if err != nil {
			return nil, &sandbox.Error{Code: sandbox.CodeSetupFailed, Field: "base.debian", Err: err, Message: fmt.Sprintf("cannot read the host's apt sources: %v", err), Hint: "see to it that " + name + " can be read"}
		}
		if strings.HasSuffix(name, ".sources") {
			lines = append(lines, stanzas(text, suite)...)
		} else {
			lines = append(lines, oneLiners(text, suite)...)
		}
	}
	slices.Sort(lines) // which comes first makes no difference to apt, and must make none to the image
	return slices.Compact(lines), nil
}

// maxSources bounds one file of sources, in bytes.
const maxSources = 1 << 20

func readSources(name string) (string, error) {
	f, err := os.Open(name)
	if os.IsNotExist(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, maxSources))
	return string(text), err
}

// ofSuite says whether it is the suite, or its updates.
func ofSuite(name, suite string) bool {
	return name == suite || name == suite+"-updates" || name == suite+"-security" || name == suite+"/updates"
}

// secret says whether an address names a user, and so may hold a password. Such a source is
// not taken: it would stand in the command line, and in the image's own sources, for every
// sandbox to read.
func secret(uri string) bool {
	_, rest, _ := strings.Cut(uri, "://")
	host, _, _ := strings.Cut(rest, "/")
	return strings.Contains(host, "@")
}

// oneLiners takes what fits from lines like "deb [options] URI suite component...".
func oneLiners(text, suite string) (found []string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		rest, ok := strings.CutPrefix(line, "deb ")
		if !ok {
			continue
		}
		options := ""
		if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "[") {
			if options, rest, ok = strings.Cut(rest, "]"); !ok {
				continue
			}
			options += "] "
		}
		if f := strings.Fields(rest); len(f) >= 3 && ofSuite(f[1], suite) && !secret(f[0]) {
			found = append(found, "deb "+options+strings.Join(f, " "))
		}
	}
	return found
}

// stanzas takes what fits from a file in the form deb822, see sources.list(5).
func stanzas(text, suite string) (found []string) {
	for stanza := range strings.SplitSeq(strings.ReplaceAll(text, "\r", ""), "\n\n") {
		fields := map[string]string{}
		last := ""
		for line := range strings.Lines(stanza) {
			line = strings.TrimRight(line, "\n")
			name, value, ok := strings.Cut(line, ":")
			switch {
			case strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
				fields[last] += " " + strings.TrimSpace(line)
			case ok:
				last = strings.ToLower(name)
				fields[last] = strings.TrimSpace(value)
			}
		}
		found = append(found, lines(fields, suite)...)
	}
	return found
}

// lines says a stanza in the other form.
func lines(fields map[string]string, suite string) (found []string) {
	if strings.EqualFold(fields["enabled"], "no") || !slices.Contains(strings.Fields(fields["types"]), "deb") {
		return nil
	}
	options := ""
	if key := fields["signed-by"]; filepath.IsAbs(key) && !strings.ContainsAny(key, " ]") {
		options = "[signed-by=" + key + "] "
	} else if key != "" {
		return nil // a key that stands in the file; apt's other form has no room for it
	}
	for _, uri := range strings.Fields(fields["uris"]) {
		for _, s := range strings.Fields(fields["suites"]) {
			if ofSuite(s, suite) && fields["components"] != "" && !secret(uri) {
				found = append(found, "deb "+options+uri+" "+s+" "+strings.Join(strings.Fields(fields["components"]), " "))
			}
		}
	}
	return found
}
