package api

import (
	"bytes"
	_ "embed" // the document and its page
	"html"
)

// The OpenAPI document and the page for readers are made from the table of
// routes by the tests, with huma, and kept here: a test fails when they are out
// of date. Made at every start, they would cost every start of the program some
// milliseconds, that of "pinfold run" too.

//go:embed openapi.json
var documentText []byte

//go:embed docs.html
var pageText []byte

// anyVersion stands in both where the version goes.
const anyVersion = "VERSION"

// pagePolicy lets the page use its own style and nothing else.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// document returns the OpenAPI document and the page, of this version.
func document(version string) (doc, page []byte) {
	name := []byte(html.EscapeString(version)) // the text of both formats, for what versions are made of
	return bytes.Replace(documentText, []byte(anyVersion), name, 1), bytes.Replace(pageText, []byte(anyVersion), name, 1)
}
