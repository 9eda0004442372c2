package cli

import (
	"bytes"
	"testing"

	"pinfold/sandbox"
)

// TestResultInOrder: a result's stderr was once printed after all of its stdout.
func TestResultInOrder(t *testing.T) {
	order := []sandbox.OutputPiece{{Stream: "stdout", Bytes: 2}, {Stream: "stderr", Bytes: 2}, {Stream: "stdout", Bytes: 2}}
	for name, c := range map[string]struct {
		stdout, stderr string
		raw            []byte
		order          []sandbox.OutputPiece
		want           string
	}{
		"in turns":                {"1\n3\n", "2\n", nil, order, "1\n2\n3\n"},
		"without an order":        {"1\n3\n", "2\n", nil, nil, "1\n3\n2\n"},
		"more than the pieces":    {"1\n3\n5\n", "2\n4\n", nil, order, "1\n2\n3\n5\n4\n"},
		"cut within a piece":      {"1\n3", "2", nil, order, "1\n23"},
		"bytes that are no text":  {"\ufffd\n3\n", "2\n", nil, order, "\ufffd\n3\n2\n"},
		"the bytes beside a text": {"\ufffd\n3\n", "2\n", []byte("\xff\n3\n"), order, "\xff\n2\n3\n"},
		"pieces of a bad server":  {"1\n3\n", "2\n", nil, []sandbox.OutputPiece{{Stream: "else", Bytes: 9}, {Stream: "stderr", Bytes: -1}, {Stream: "stderr", Bytes: 1 << 62}}, "2\n1\n3\n"},
	} {
		var both bytes.Buffer
		r := &sandbox.Result{Stdout: c.stdout, Stderr: c.stderr, ExactOutput: sandbox.ExactOutput{StdoutRaw: c.raw, OutputOrder: c.order}}
		if err := writeOrdered(r, &both, &both); err != nil || both.String() != c.want {
			t.Errorf("%s: %q %v, want %q", name, both.String(), err, c.want)
		}
	}
}
