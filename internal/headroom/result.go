package headroom

import (
	"encoding/json"

	"pinfold/sandbox"
)

// OfResult is about how much memory the answer with a result takes, the result
// itself and its JSON. Text can take six times its length there.
func OfResult(r *sandbox.Result) (n int64) {
	for _, text := range []string{r.Stdout, r.Stderr} {
		n += 2*int64(len(text)) + escapes(text)
	}
	n += 3 * int64(len(r.StdoutRaw)+len(r.StderrRaw)) // base64 in JSON
	for _, a := range r.Artifacts {
		n += 3 * int64(len(a.Content))
	}
	for _, rich := range r.Results {
		for _, v := range rich {
			switch v := v.(type) {
			case string:
				n += 2*int64(len(v)) + escapes(v)
			case json.RawMessage:
				n += 2 * int64(len(v))
			}
		}
	}
	return n
}

// escapes is how much longer a text is in JSON, at most.
func escapes(text string) (n int64) {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c == '<' || c == '>' || c == '&':
			n += 5
		case c == '"' || c == '\\' || c >= 0x80:
			n++
		}
	}
	return n
}
