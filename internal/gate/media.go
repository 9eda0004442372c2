package gate

import (
	"bytes"
	"strings"

	"github.com/gabriel-vasile/mimetype"
)

const (
	anyBytes = "application/octet-stream"
	anyText  = "text/plain"
)

// media is what a file is: by its name, and by its content.
type media struct {
	declared string
	found    *mimetype.MIME
}

// mediaOf looks at the beginning of a file.
func mediaOf(declared string, data []byte) media { return media{declared, mimetype.Detect(data)} }

// isText says that the content is text.
func (m media) isText() bool { return descends(m.found, anyText) }

// isBinary says that nothing can be taken out of the content.
func (m media) isBinary(content []byte) bool {
	return !m.isText() || bytes.IndexByte(content, 0) >= 0
}

// is says that the content is of that type, or of one that is a kind of it.
func (m media) is(types ...string) bool {
	for _, t := range types {
		if descends(m.found, t) {
			return true
		}
	}
	return false
}

func descends(m *mimetype.MIME, media string) bool {
	for ; m != nil; m = m.Parent() {
		if m.Is(media) {
			return true
		}
	}
	return false
}

// loose are declared types whose content is any text.
var loose = map[string]bool{"text/html": true, "text/markdown": true, "text/x-python": true, "text/javascript": true, "application/xml": true}

// agree says that the content may be what the name says.
func (m media) agree(empty bool) bool {
	switch {
	case empty, m.declared == anyBytes:
		return true
	case descends(m.found, m.declared):
		return true
	case !isTextType(m.declared):
		return false
	case loose[m.declared]:
		return m.isText()
	}
	return m.isText() && !m.is("text/html", "image/svg+xml") // what runs does not pass as a table or a note
}

// isTextType says that files of a declared type are text.
func isTextType(media string) bool {
	switch media {
	case "application/json", "application/jsonl", "application/toml", "application/yaml", "application/xml", "application/x-ipynb+json":
		return true
	}
	return strings.HasPrefix(media, "text/")
}

// name is the type as the gate takes it: the declared one where the content agrees.
func (m media) name(empty bool) string {
	if m.declared != anyBytes && m.agree(empty) {
		return m.declared
	}
	name, _, _ := strings.Cut(m.found.String(), ";")
	return name
}
