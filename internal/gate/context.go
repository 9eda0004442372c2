package gate

import (
	"fmt"
	"unicode/utf8"

	"pinfold/sandbox"
)

// excerpt cuts a text for a model's context: its beginning and its end, whole lines where
// that costs little, and between them what was left out.
func excerpt(stream, id, text string, most int) sandbox.GateExcerpt {
	if len(text) <= most {
		return sandbox.GateExcerpt{Text: text}
	}
	note := func(from, n int) string {
		return fmt.Sprintf("[%d bytes of %s left out, from byte %d; the whole is in the result of %s]\n", n, stream, from, id)
	}
	room := max(0, most-1-len(note(len(text), len(text))))
	head := cutBefore(text, room*2/3)
	tail := cutAfter(text, len(text)-(room-head))
	left := tail - head
	lineEnd := ""
	if head > 0 && text[head-1] != '\n' {
		lineEnd = "\n"
	}
	return sandbox.GateExcerpt{Text: text[:head] + lineEnd + note(head, left) + text[tail:], LeftOutFrom: int64(head), LeftOutBytes: int64(left)}
}

// cutBefore is a place at most at, behind the end of a line if one ended shortly before.
func cutBefore(text string, at int) int {
	for n := at; n > 0 && n > at-at/4; n-- {
		if text[n-1] == '\n' {
			return n
		}
	}
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

// cutAfter is a place at least at, behind the end of a line if one ends shortly after.
func cutAfter(text string, at int) int {
	for n := at; n < len(text) && n < at+(len(text)-at)/4; n++ {
		if text[n-1] == '\n' {
			return n
		}
	}
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return at
}
