package gate

import (
	"archive/zip"
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"

	"pinfold/sandbox"
)

// number is what may begin with a sign in a table.
var number = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\A[+-](?:\d[\d.,'\x{a0}\x{202f}]*(?:[eE][+-]?\d{1,4})?\s?[%€$£]?|\.\d+(?:[eE][+-]?\d{1,4})?|[$€£]\d[\d.,]*|(?i:inf|infinity|nan))?\z`)
})

// maxCell bounds how much of a cell is looked at to tell a number from a formula, in bytes.
const maxCell = 64

// formulas looks for cells of a table in text that a spreadsheet would compute. Which
// character ends a cell is the reader's choice, and decides which quotes are quotes: each
// is tried.
func (s *scan) formulas(c *check) {
	data := s.part.data
	readers := [...]cells{{by: ','}, {by: ';'}, {by: '\t'}, {by: '|'}}
	for i, b := range data {
		begins := false
		for k := range readers {
			begins = readers[k].begins(b) || begins
		}
		if begins && sign(data[i:]) > 0 && !isNumber(data[i:]) {
			s.hit(c, i, i, "formula", "'")
		}
	}
}

// cells reads a table whose cells one character divides.
type cells struct {
	by byte
	in cellState
}

type cellState int

const (
	atBegin   cellState = iota // of a cell
	inPlain                    // a quote is a character like others
	atQuote                    // in quotes, behind one: the end, or half of a quote
	inQuotes                   // this and what follows are all in quotes
	quoteLine                  // at the begin of a line
	quoteOpen                  // behind the first quote
)

// begins takes the next byte, and says whether the text of a cell, or of a line, begins
// with it.
func (c *cells) begins(b byte) (first bool) {
	first = c.in == atBegin && b != '"' || c.in == quoteLine || c.in == quoteOpen
	quoted, ends := c.in >= inQuotes, b == '\n' || b == '\r'
	switch {
	case c.in == atBegin && b == '"':
		c.in = quoteOpen
	case quoted && b == '"':
		c.in = atQuote
	case c.in == atQuote && b == '"':
		c.in = inQuotes
	case quoted && ends: // a quote that is never closed hides nothing
		c.in = quoteLine
	case quoted:
		c.in = inQuotes
	case b == c.by || ends:
		c.in = atBegin
	default:
		c.in = inPlain
	}
	return first
}

// sign is the length of the character by which a formula begins here, or 0. The wide forms
// are signs for some spreadsheets.
func sign(data []byte) int {
	for _, lead := range []string{"=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"} {
		if bytes.HasPrefix(data, []byte(lead)) {
			return len(lead)
		}
	}
	return 0
}

// isNumber says that the cell is a number with a sign, or a sign alone.
func isNumber(data []byte) bool {
	cell := data[:min(len(data), maxCell)]
	if end := bytes.IndexAny(cell, ",;\t|\"\r\n"); end >= 0 {
		cell = cell[:end]
	}
	return number().Match(bytes.TrimRight(cell, " "))
}

// Bounds on what is read of a workbook.
const (
	maxSheets     = 1000
	maxSheetBytes = 64 << 20 // of all together, unpacked
)

// workbook looks into a file of Excel's: it says what in there computes or runs.
func (g *Gate) workbook(p part, c *check) (outcome sandbox.GateAction) {
	outcome = c.Action
	if outcome == sandbox.GateRedact {
		outcome = sandbox.GateWithhold
	}
	before := c.Count
	z, err := zip.NewReader(bytes.NewReader(p.data), int64(len(p.data)))
	if err != nil {
		c.found(p, -1, "a workbook that cannot be read", outcome)
		return outcome
	}
	left := int64(maxSheetBytes)
	for i, f := range z.File {
		name := strings.ToLower(f.Name)
		switch {
		case i == maxSheets:
			c.found(p, -1, "a workbook with more parts than are read", outcome)
			return outcome
		case strings.HasSuffix(name, "vbaproject.bin"):
			c.found(p, -1, "macros", outcome)
		case strings.Contains(name, "externallinks/") || strings.HasSuffix(name, "connections.xml"):
			c.found(p, -1, "links to other files", outcome)
		case strings.Contains(name, "worksheets/") && strings.HasSuffix(name, ".xml"):
			found, n, err := hasFormula(f, left)
			left -= n
			switch {
			case err != nil || left <= 0:
				c.found(p, -1, "a sheet that cannot be read, or is too large to be", outcome)
				return outcome
			case found:
				c.found(p, -1, "a sheet with formulas", outcome)
			}
		}
	}
	if c.Count == before {
		return ""
	}
	return outcome
}

// hasFormula says whether a sheet has an element f, in any namespace.
func hasFormula(f *zip.File, most int64) (found bool, n int64, err error) {
	r, err := f.Open()
	if err != nil {
		return false, 0, err
	}
	defer r.Close() //nolint:errcheck // only read
	sheet, err := io.ReadAll(io.LimitReader(r, most))
	return formulaElement().Match(sheet), int64(len(sheet)), err
}

var formulaElement = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`<(?:[\w-]{1,40}:)?f[\s/>]`) })
