package interpreter

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// Bounds on what comes out as results of one run.
const (
	MaxResultsBytes = 16 << 20 // the file
	maxResults      = 100
	// maxValues bounds the values of all results, at every depth. Looking at one costs
	// the host more than writing it costs the program. Five of the largest data
	// frames that a harness writes have so many: 1,000 rows of 100 columns.
	maxValues  = 500_000
	maxSkipped = 20
	maxReason  = 200
)

// Results is what a harness reported, once it was looked at.
type Results struct {
	Values  []sandbox.Rich
	Skipped []sandbox.SkippedResult
}

// skip notes that something stayed out. Only so many notes are kept.
func (r *Results) skip(code, reason string) {
	if len(r.Skipped) < maxSkipped {
		r.Skipped = append(r.Skipped, sandbox.SkippedResult{Code: code, Reason: sandbox.SafeText(reason, maxReason)})
	}
}

// Skip is what a result says when its results could not be read at all. The
// reason may be anybody's text.
func Skip(code, reason string) Results {
	var r Results
	r.skip(code, reason)
	return r
}

// ReadResults reads a results file, one JSON object in a line. Every byte is
// the guest's: what is not as it should be is left out and noted. The memory
// that it takes is bounded by a small multiple of MaxResultsBytes.
func ReadResults(file []byte) Results {
	var r Results
	if len(file) > MaxResultsBytes {
		return Skip(sandbox.CodeTooLarge, "the results together are larger than "+sandbox.FormatSize(MaxResultsBytes))
	}
	for number, left := 0, maxValues; len(file) > 0; {
		var line []byte
		line, file, _ = bytes.Cut(file, []byte("\n"))
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if number++; number > maxResults {
			r.skip(sandbox.CodeTooLarge, fmt.Sprintf("there are more than %d results", maxResults))
			return r
		}
		if n := strictjson.CountValues(line, left); n <= left {
			left -= n
			r.take(number, line)
			continue
		}
		r.skip(sandbox.CodeTooLarge, fmt.Sprintf("result %d: with it the results have more than %d values", number, maxValues))
	}
	return r
}

// take adds the result of one line, without the forms that are not as they
// should be.
func (r *Results) take(number int, line []byte) {
	members, err := object(line)
	if err != nil {
		r.skip(sandbox.CodeSpecInvalid, fmt.Sprintf("result %d: %s", number, err))
		return
	}
	rich := sandbox.Rich{}
	for _, m := range members {
		if m.name == "skipped" && len(members) == 1 { // the harness's own word
			if reason, ok := text(m.value); ok {
				r.skip(sandbox.CodeTooLarge, reason)
				return
			}
		}
		value, why := form(m.name, m.value)
		if why != "" {
			r.skip(sandbox.CodeSpecInvalid, fmt.Sprintf("result %d: %s: %s", number, m.name, why))
			continue
		}
		rich[m.name] = value
	}
	if len(rich) > 0 {
		r.Values = append(r.Values, rich)
	}
}

// Buffer is an io.Writer that takes no more than a results file may have.
type Buffer struct{ bytes.Buffer }

// Write refuses what would be too much.
func (b *Buffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > MaxResultsBytes {
		return 0, io.ErrShortBuffer
	}
	return b.Buffer.Write(p)
}

// textTypes are the media types whose values are text as it is.
func textTypes() []string {
	return []string{"text/plain", "text/html", "text/markdown", "text/latex", "text/csv", "image/svg+xml"}
}

func isText(media string) bool { return slices.Contains(textTypes(), media) }
