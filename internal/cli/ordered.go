package cli

import (
	"io"
	"strings"

	"pinfold/sandbox"
)

// writeOrdered prints the output of a result as it came: the pieces of both streams in
// turn, then what is in no piece. Pieces count bytes that the program wrote. Where a
// text is not those bytes, because some of them were not UTF-8, it has no order.
func writeOrdered(r *sandbox.Result, stdout, stderr io.Writer) error {
	rest := map[string]string{"stdout": r.Stdout, "stderr": r.Stderr}
	exact := true
	for name, raw := range map[string][]byte{"stdout": r.StdoutRaw, "stderr": r.StderrRaw} {
		if raw != nil {
			rest[name] = string(raw)
		} else if strings.Contains(rest[name], "\ufffd") {
			exact = false
		}
	}
	to := map[string]io.Writer{"stdout": stdout, "stderr": stderr}
	pieces := r.OutputOrder
	if !exact {
		pieces = nil
	}
	for _, p := range append(pieces[:len(pieces):len(pieces)], all("stdout"), all("stderr")) {
		text := rest[p.Stream]
		n := min(max(p.Bytes, 0), int64(len(text))) // what was cut is in pieces, too
		rest[p.Stream] = text[n:]
		if n == 0 {
			continue
		}
		if _, err := io.WriteString(to[p.Stream], text[:n]); err != nil {
			return err
		}
	}
	return nil
}

// all is a piece that has whatever there still is of a stream.
func all(stream string) sandbox.OutputPiece {
	return sandbox.OutputPiece{Stream: stream, Bytes: 1 << 62}
}
