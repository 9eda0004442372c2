package gate

import (
	"unicode"
	"unicode/utf8"
)

// What is found, as findings name it.
const (
	whatSequence  = "terminal sequence"
	whatControl   = "control character"
	whatInvisible = "invisible character"
	whatOrder     = "character that changes the order of text"
)

// plainByte are the bytes that no check of characters looks at more closely.
var plainByte = func() (plain [256]bool) {
	for b := ' '; b < utf8.RuneSelf; b++ {
		plain[b] = b != 0x7f
	}
	plain['\n'], plain['\t'], plain['\r'] = true, true, true
	return plain
}()

// characters looks at every character once. Either check may be nil.
func (s *scan) characters(control, hidden *check) {
	data := s.part.data
	before := rune(0) // the character before
	for i := 0; i < len(data); {
		b := data[i]
		if plainByte[b] {
			before = rune(b)
			i++
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		end := i + size
		switch {
		case r < ' ' || 0x7f <= r && r < 0xa0:
			what := whatControl
			if end = sequence(data, i); end > i+size {
				what = whatSequence
			}
			if control != nil {
				s.hit(control, i, end, what, "")
			}
		case r < 0xa0 || hidden == nil || r == utf8.RuneError:
		case isOrder(r):
			s.hit(hidden, i, end, whatOrder, "")
		case isInvisible(r):
			n := end
			if isTag(r) {
				n = flagTag(data, i, before)
			}
			switch {
			case n > end: // the rest of a flag
				end = n
			case !hasItsPlace(r, before, i == 0):
				s.hit(hidden, i, end, whatInvisible, "")
			}
		}
		before = r
		i = end
	}
}

// sequence is where the terminal sequence ends that begins here; a character that begins
// none ends after itself.
func sequence(data []byte, i int) int {
	r, size := utf8.DecodeRune(data[i:])
	next := i + size
	introducer := byte(r) - 0x40 // of a C1 character, which is as ESC and this
	switch {
	case r == 0x1b && next < len(data):
		introducer = data[next]
		next++
	case r < 0x80 || 0xa0 <= r:
		return next
	}
	switch introducer {
	case '[':
		return control(data, next)
	case ']', 'P', 'X', '^', '_':
		return stringEnd(data, next)
	}
	if r == 0x1b {
		return shortSequence(data, i+size)
	}
	return next
}

// control is where a control sequence (CSI) ends whose parameters begin here.
func control(data []byte, at int) int {
	for at < len(data) && 0x20 <= data[at] && data[at] < 0x40 {
		at++
	}
	if at < len(data) && 0x40 <= data[at] && data[at] < 0x7f {
		at++
	}
	return at
}

// stringEnd is where the string of a sequence ends: behind BEL or ST, and no further than
// its line.
func stringEnd(data []byte, at int) int {
	for at < len(data) && data[at] >= ' ' {
		at++
	}
	rest := data[at:]
	switch {
	case len(rest) > 0 && rest[0] == 7:
		return at + 1
	case len(rest) > 1 && rest[0] == 0x1b && rest[1] == '\\':
		return at + 2
	}
	return at
}

// shortSequence is where a sequence ends that is intermediate bytes and a final one; what
// is none ends where it begins.
func shortSequence(data []byte, begin int) int {
	at := begin
	for at < len(data) && 0x20 <= data[at] && data[at] < 0x30 {
		at++
	}
	if at < len(data) && 0x30 <= data[at] && data[at] < 0x7f {
		return at + 1
	}
	return begin
}

func isOrder(r rune) bool { return 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 }

func isTag(r rune) bool { return 0xe0000 <= r && r <= 0xe007f }

// isInvisible says of a character that it has no shape and takes no room.
func isInvisible(r rune) bool {
	switch {
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x180e, r == 0x3164, r == 0xffa0, r == 0xfeff,
		0x180b <= r && r <= 0x180f, 0x200b <= r && r <= 0x200f, 0x2028 <= r && r <= 0x2029, 0x2060 <= r && r <= 0x2065, 0x206a <= r && r <= 0x206f,
		0xfe00 <= r && r <= 0xfe0f, 0xfff0 <= r && r <= 0xfffb, 0x1d173 <= r && r <= 0x1d17a, 0xe0000 <= r && r <= 0xe0fff:
		return true
	}
	return false
}

// hasItsPlace says of an invisible character that it stands where honest text has it:
// joiners and marks of direction beside scripts that need them, variation selectors after
// what has variations, a byte order mark at the beginning.
func hasItsPlace(r, before rune, first bool) bool {
	switch {
	case r == 0xfeff:
		return first
	case r == 0x200c, r == 0x200d, r == 0x200e, r == 0x200f, r == 0x61c:
		return before >= 0x590 && !isInvisible(before) || before >= 0xfe00 && before <= 0xfe0f
	case 0xfe00 <= r && r <= 0xfe0f:
		return !isInvisible(before) && (unicode.IsSymbol(before) || unicode.IsPunct(before) || before >= 0x2000 || '0' <= before && before <= '9')
	case 0xe0100 <= r && r <= 0xe01ef, 0x180b <= r && r <= 0x180d, r == 0x180f:
		return unicode.In(before, unicode.Han, unicode.Mongolian)
	}
	return false
}

// flagTag is where the tags end that make, with the black flag before them, the flag of a
// region; i where they make none.
func flagTag(data []byte, i int, before rune) int {
	if before != 0x1f3f4 {
		return i
	}
	for range 7 {
		r, size := utf8.DecodeRune(data[i:])
		if !isTag(r) {
			return 0
		}
		i += size
		if r == 0xe007f {
			return i
		}
	}
	return 0
}
