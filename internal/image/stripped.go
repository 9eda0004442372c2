package image

import (
	"bytes"
	"strings"
)

// stripped lists files of the host's /etc that are mostly comments, or say much that
// nobody looks up. Only what is said is copied: every sandbox has a copy of its own.
var stripped = []struct {
	path  string
	least int // so many words that a line says something
}{
	{"/etc/matplotlibrc", 1},
	{"/etc/mime.types", 2}, // a type without an extension is found by nobody
}

// maxStripped bounds such a file, in bytes.
const maxStripped = 256 << 10

// maxShort bounds what is left of it.
const maxShort = 64 << 10

// addStripped copies what they say.
func (t *Template) addStripped(v view) {
	for _, s := range stripped {
		content, ok := v.read(s.path, maxStripped, "/etc")
		if !ok {
			continue
		}
		var kept bytes.Buffer
		for line := range strings.Lines(string(content)) {
			words := strings.Fields(line)
			if len(words) >= s.least && words[0][0] != '#' {
				kept.WriteString(strings.Join(words, " ") + "\n")
			}
		}
		if kept.Len() > maxShort {
			continue
		}
		t.Files = append(t.Files, File{Path: s.path, Mode: 0o644, Content: kept.Bytes()})
	}
}
