package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Encode returns a message as JSON. Characters that only matter in HTML are
// not escaped, so that arguments keep their size.
func Encode(message any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(message); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Decode reads exactly one JSON object into message. An unknown field, a
// value of the wrong type, null in place of the object or anything after it
// is a *Violation. The payload's length has been bounded by the Reader;
// encoding/json bounds the depth.
func Decode(payload []byte, message any) error {
	if p := bytes.TrimLeft(payload, " \t\r\n"); len(p) == 0 || p[0] != '{' {
		return violation("a message that is not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(message); err != nil {
		return violation("a message that cannot be decoded")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return violation("something after a message")
	}
	return nil
}
