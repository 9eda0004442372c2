package language

import (
	"regexp"
	"sync"
)

// Version is how a language's version is read: what to run, what to give it as
// input, and a pattern whose first group is the version. Args is nil where
// there is no way to ask.
type Version struct {
	Args    []string // as in Language; the environment is that of the steps
	Stdin   string
	Pattern string
}

// MaxVersionOutput is how many bytes of a version command's output are looked
// at. It comes from inside a sandbox.
const MaxVersionOutput = 4 << 10

// versionShape is what a version may look like, whatever was printed.
var versionShape = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9]+(\.[0-9]+)*[0-9A-Za-z.+~_-]{0,24}$`)
})

// Parse reads the version from the output (standard output and error, in any
// order) of the version command. ok is false when it is not there.
func (v Version) Parse(output []byte) (version string, ok bool) {
	pattern, err := regexp.Compile(v.Pattern)
	if err != nil || v.Pattern == "" {
		return "", false
	}
	m := pattern.FindSubmatch(output[:min(len(output), MaxVersionOutput)])
	if len(m) < 2 || len(m[1]) > 64 || !versionShape().Match(m[1]) {
		return "", false
	}
	return string(m[1]), true
}
