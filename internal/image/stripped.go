package image

import "bytes"

// stripped lists files of the host's /etc that are mostly comments, or say much that
// nobody looks up. Only what is said is copied: every sandbox has a copy of its own.
var stripped = []struct {
	path  string
	least int // lines with fewer words are left out
}{
	{"/etc/matplotlibrc", 1},
	{"/etc/mime.types", 2}, // a type without an extension is of no use
}

// maxStripped bounds such a file, in bytes.
const maxStripped = 256 << 10

// maxShort bounds what is left of it.
const maxShort = 64 << 10

// addStripped copies what they say.
func (t *Template) addStripped(v *view) {
	for _, s := range stripped {
		content, ok := v.read(s.path, maxStripped, "/etc")
		if !ok {
			continue
		}
		said := strip(content, s.least)
		if len(said) > maxShort {
			continue
		}
		t.Files = append(t.Files, File{Path: s.path, Mode: 0o644, Content: said})
	}
}

// strip leaves of a text the lines that are no comments and have so many words, with
// one space between them. It works in place: every cold start waits for it.
func strip(text []byte, least int) []byte {
	said := text[:0]
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		begin, words := len(said), 0
		for i := 0; i < len(line); i++ {
			word := i
			for i < len(line) && line[i] != ' ' && line[i] != '\t' && line[i] != '\r' {
				i++
			}
			if word == i {
				continue
			}
			if words == 0 && line[word] == '#' {
				break
			}
			if words > 0 {
				said = append(said, ' ')
			}
			said = append(said, line[word:i]...)
			words++
		}
		if words < max(least, 1) {
			said = said[:begin]
			continue
		}
		said = append(said, '\n')
	}
	return said
}
