package stdio

import (
	"strings"

	"pinfold/sandbox"
)

// What is shown of the end of an output with a failure.
const (
	shownBytes = 2000
	shownLines = 20
)

// LastLines is what people are shown of the end of what a command printed, as safe text.
func LastLines(b []byte) string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD")), "\n")
	lines = lines[max(0, len(lines)-shownLines):]
	for i, l := range lines {
		lines[i] = sandbox.SafeText(strings.TrimRight(l, "\r"), 300)
	}
	text := strings.Join(lines, "\n")
	return strings.ToValidUTF8(text[max(0, len(text)-shownBytes):], "")
}
