package interpreter

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

// Bounds on JSON that others will parse after us.
const (
	maxDepth   = 64
	maxNames   = 10_000 // of one object
	maxMembers = 32     // forms of one result
	maxDigits  = 300    // some readers fail on longer numbers
)

var (
	errUTF8      = errors.New("it is not UTF-8")
	errJSON      = errors.New("it is not a JSON object")
	errDepth     = errors.New("its JSON is nested too deep")
	errDuplicate = errors.New("its JSON has a name twice")
	errNumber    = errors.New("its JSON has a number that is too long")
	errNames     = errors.New("its JSON has an object with too many names")
	errMembers   = errors.New("it has too many forms")
)

// member is one name and value of an object.
type member struct {
	name  string
	value json.RawMessage
}

// object reads one line as a JSON object, strictly: UTF-8, nothing after it, no
// name twice at any depth, bounded depth. Values are compact copies of their
// text, so that numbers stay as they were written.
func object(line []byte) ([]member, error) {
	if !utf8.Valid(line) {
		return nil, errUTF8
	}
	if err := checkJSON(line); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errJSON
	}
	var members []member
	for d.More() {
		if len(members) == maxMembers {
			return nil, errMembers
		}
		name, err := d.Token()
		if err != nil {
			return nil, errJSON
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, errJSON
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			return nil, errJSON
		}
		s, _ := name.(string)
		members = append(members, member{s, compact.Bytes()})
	}
	return members, nil
}

// text returns a JSON string's content.
func text(value json.RawMessage) (s string, ok bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	err := json.Unmarshal(value, &s)
	return s, err == nil
}

// checkJSON reads the whole text as tokens. Only the names of the objects that
// are open at one time are held.
func checkJSON(text []byte) error {
	c := checker{json.NewDecoder(bytes.NewReader(text))}
	c.UseNumber()
	if err := c.value(0); err != nil {
		return err
	}
	if _, err := c.Token(); !errors.Is(err, io.EOF) {
		return errJSON
	}
	return nil
}

type checker struct{ *json.Decoder }

// value reads one value, which is depth levels down.
func (c checker) value(depth int) error {
	t, err := c.Token()
	if err != nil {
		return errJSON
	}
	switch t := t.(type) {
	case json.Number:
		if len(t) > maxDigits {
			return errNumber
		}
	case json.Delim:
		if depth == maxDepth {
			return errDepth
		}
		return c.container(t == '{', depth+1)
	}
	return nil
}

// container reads what is in an object or an array, and its end.
func (c checker) container(isObject bool, depth int) error {
	var names map[string]bool
	if isObject {
		names = map[string]bool{}
	}
	for c.More() {
		if isObject {
			t, err := c.Token()
			name, ok := t.(string)
			if err != nil || !ok {
				return errJSON
			}
			switch {
			case names[name]:
				return errDuplicate
			case len(names) == maxNames:
				return errNames
			}
			names[name] = true
		}
		if err := c.value(depth); err != nil {
			return err
		}
	}
	if _, err := c.Token(); err != nil {
		return errJSON
	}
	return nil
}
