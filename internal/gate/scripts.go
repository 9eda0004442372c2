package gate

import (
	"bytes"
	"html"
	"slices"
	"strings"
)

// elements are those of HTML and SVG that run, load or change what others do.
var elements = []string{
	"script", "iframe", "frame", "object", "embed", "applet", "foreignobject", "base", "portal", "handler", "listener", "animate", "set",
}

// readScripts looks for what HTML and SVG would run or load by themselves. It is looked for
// as bytes, wherever it stands: parsers of HTML and of XML disagree on what is a comment or
// a text, and what one shows as a text another runs.
func (g *Gate) readScripts(s *scan) {
	c := g.by["scripts"]
	if c == nil {
		return
	}
	data := s.part.data
	for i := 0; ; i++ {
		next := bytes.IndexAny(data[i:], "<=")
		if next < 0 {
			break
		}
		i += next
		var what string
		if data[i] == '<' {
			what = element(data[i+1:])
		} else {
			what = attribute(data[:i])
		}
		if what != "" {
			s.hit(c, i, i+1, what, "")
		}
	}
	for range runs(data) {
		s.hit(c, -1, -1, "address that runs a script", "")
	}
}

// element names what begins behind a <, or is "".
func element(rest []byte) string {
	rest = bytes.ToLower(rest[:min(len(rest), 64)])
	if bytes.HasPrefix(rest, []byte("!entity")) || bytes.HasPrefix(rest, []byte("?xml-stylesheet")) {
		return "declaration of an entity or a style sheet"
	}
	end := bytes.IndexAny(rest, " \t\r\n\f/>")
	if end < 0 {
		return ""
	}
	name := string(rest[:end])
	if _, local, ok := strings.Cut(name, ":"); ok { // svg:script
		name = local
	}
	if slices.Contains(elements, name) {
		return name + " element"
	}
	return ""
}

// attribute names the attribute whose name ends before a =, or is "".
func attribute(before []byte) string {
	before = bytes.TrimRight(before, " \t\r\n\f\x00")
	from := len(before)
	for from > 0 && len(before)-from < 32 && (before[from-1]|0x20 >= 'a' && before[from-1]|0x20 <= 'z' || before[from-1] == '-') {
		from--
	}
	name := strings.ToLower(string(before[from:]))
	boundary := from > 0 && strings.IndexByte(" \t\r\n\f/\"'", before[from-1]) >= 0
	switch {
	case boundary && len(name) > 4 && strings.HasPrefix(name, "on"):
		return "handler of an event"
	case name == "http-equiv":
		return "redirection"
	}
	return ""
}

// runs finds addresses by which something runs, as a browser reads them: without white
// space, with entities in the place of characters.
func runs(data []byte) (places []int) {
	plain := bytes.Map(func(r rune) rune {
		if r <= ' ' {
			return -1
		}
		return r
	}, []byte(html.UnescapeString(string(data))))
	for i := 0; len(places) < maxSpans; i++ {
		next := bytes.IndexByte(plain[i:], ':')
		if next < 0 {
			break
		}
		i += next
		before := strings.ToLower(string(plain[max(0, i-12):i]))
		after := strings.ToLower(string(plain[i+1 : min(len(plain), i+24)]))
		script := strings.HasSuffix(before, "javascript") || strings.HasSuffix(before, "vbscript")
		if script || strings.HasSuffix(before, "data") && (strings.HasPrefix(after, "text/html") || strings.HasPrefix(after, "text/xml") || strings.HasPrefix(after, "image/svg") || strings.HasPrefix(after, "application/x")) {
			places = append(places, i)
		}
	}
	return places
}
