package interpreter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
)

// jsonTypes are the media types whose values are JSON. It is compiled when it is
// needed: every start of the program would pay for it.
var jsonTypes = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^application/(json|geo\+json|vnd\.[a-z0-9][a-z0-9.-]{0,80}\+json)$`)
})

// maxSVG bounds how far a picture may begin with comments and declarations.
const maxSVG = 4096

// form checks one value by its media type. The value is a string for text and,
// in base64, for images, and for JSON a string or a json.RawMessage. why says
// what is wrong.
func form(media string, value json.RawMessage) (checked any, why string) {
	s, isString := text(value)
	switch {
	case isText(media):
		if !isString {
			return nil, "it is not a string"
		}
		if media == "image/svg+xml" && !strings.Contains(s[:min(len(s), maxSVG)], "<svg") {
			return nil, "it is not an SVG picture"
		}
		return s, ""
	case strings.HasPrefix(media, "image/"):
		return s, imageFault(media, s)
	case !jsonTypes().MatchString(media):
		return nil, "no such type of results"
	case isString:
		return s, ""
	}
	return value, ""
}

// signature is how files of an image type begin.
func signature(media string) string {
	switch media {
	case "image/png":
		return "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	case "image/jpeg":
		return "\xff\xd8\xff"
	case "image/gif":
		return "GIF8"
	}
	return ""
}

// imageFault says what is wrong with an image in base64, "" when nothing is. An
// image is looked at as far as its first bytes: decoding hostile images is not
// the host's work.
func imageFault(media, s string) string {
	begins := signature(media)
	if begins == "" {
		return "no such type of results"
	}
	b, err := base64.StdEncoding.DecodeString(s)
	switch {
	case err != nil || strings.ContainsAny(s, "\r\n"):
		return "it is not base64"
	case !bytes.HasPrefix(b, []byte(begins)):
		return "it is not an image of this type"
	}
	return ""
}
