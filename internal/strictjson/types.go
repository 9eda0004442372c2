package strictjson

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"pinfold/sandbox"
)

// mismatch says whether a value that begins with the token cannot go into the
// type. The hint is the value that was probably meant, or one that would do.
func mismatch(token json.Token, t reflect.Type, at *place) error {
	if t == nil || t.Kind() == reflect.Interface || checksItself(t) || fits(token, t) && (token != nil || !at.within()) {
		return nil
	}
	e := invalid(at.String(), "must be "+kindName(t)+", not "+tokenName(token))
	if at == nil { // no field says what must be
		e.Message = "the JSON " + e.Message
	}
	if token == nil {
		e.Hint = "leave it out"
		return e
	}
	if text, ok := token.(string); ok && at != nil && at.shell {
		if e.Hint = processHint(text, at.name); e.Hint != "" {
			return e
		}
	}
	if example := example(token, t, at); example != "" {
		e.Hint = "write " + example
		if at != nil && at.field {
			e.Hint = fmt.Sprintf(`write "%s": %s`, sandbox.SafeText(at.name, 60), example)
		}
	}
	return e
}

// processHint is what was probably meant by text in a field of a process's request.
func processHint(text, field string) string {
	switch field {
	case "args":
		if strings.ContainsAny(text, "|&;<>()$`\\\"'*?[#~={}") { // for a shell, not for us
			return `write "shell": ` + quoted(text)
		}
		words := strings.Fields(text)
		if len(words) == 0 {
			return ""
		}
		for i, w := range words {
			words[i] = quoted(w)
		}
		return `write "args": [` + strings.Join(words, ", ") + `], or "shell": ` + quoted(text)
	case "stdin":
		return `write "stdin": true, and start it without ?wait=true; then send the text with POST to its /stdin, and its end with DELETE`
	}
	return ""
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// checksItself says whether a type checks its own insides.
func checksItself(t reflect.Type) bool {
	return t != nil && reflect.PointerTo(t).Implements(unmarshaler)
}

// fits says whether encoding/json would take the value.
func fits(token json.Token, t reflect.Type) bool {
	switch v := token.(type) {
	case json.Delim:
		if v == '{' {
			return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
		}
		return t.Kind() == reflect.Slice || t.Kind() == reflect.Array
	case string:
		return t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
	case bool:
		return t.Kind() == reflect.Bool
	case json.Number:
		if isFloat(t) {
			return true
		}
		return isWhole(t) && json.Unmarshal([]byte(v), reflect.New(t).Interface()) == nil
	}
	return true
}

func isFloat(t reflect.Type) bool { return t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32 }

func isWhole(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 }

func kindName(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return "a list"
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return "an object"
	case isWhole(t):
		return "a whole number"
	}
	return "a number"
}

func tokenName(token json.Token) string {
	switch v := token.(type) {
	case json.Delim:
		if v == '{' {
			return "an object"
		}
		return "a list"
	case string:
		return "a string"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return sandbox.SafeText(v.String(), 40)
	}
	return "null"
}

// examples are values of fields for which what was written tells nothing, by the field's
// name and the kind of its type. tells says of what was written that it does, as text.
var examples = map[string]struct {
	kind  reflect.Kind
	value string
	tells func(text string) bool
}{
	"language":  {reflect.String, `"python"`, nil},
	"signal":    {reflect.String, `"SIGTERM"`, isSignal},
	"files":     {reflect.Slice, `[{"path": "data.csv", "content": "a,b"}]`, nil},
	"packages":  {reflect.Struct, `{"python": ["rich==13.9.4"]}`, nil},
	"artifacts": {reflect.Slice, `["*.png"]`, nil},
}

// isSignal says whether text is the number of a signal of Linux.
func isSignal(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 1 && n <= 64
}

// packageExample is a list of one package, with the version that it must have.
func packageExample(text, kind string) string {
	between, other := "==", "rich==13.9.4"
	if kind == sandbox.PackagesNPM {
		between, other = "@", "left-pad@1.3.0"
	}
	if text == "" {
		text = other
	}
	if !strings.Contains(text[1:], between) { // an npm package's scope begins with @
		text += between + "VERSION"
	}
	return "[" + quoted(text) + "]"
}

// knownExample is that of a field of which more is known than its type.
func knownExample(text string, scalar bool, t reflect.Type, at *place) string {
	if at == nil {
		return ""
	}
	if at.owner == reflect.TypeFor[sandbox.Packages]() {
		return packageExample(text, at.name)
	}
	known := examples[at.name]
	if ownWord := scalar && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String; known.kind != t.Kind() || ownWord || known.tells != nil && known.tells(text) {
		return ""
	}
	return known.value
}

// example is a value that the field takes, in JSON; "" where any would be a guess.
func example(token json.Token, t reflect.Type, at *place) string {
	text, scalar := "", true
	switch v := token.(type) {
	case string:
		text = v
	case bool:
		text = strconv.FormatBool(v)
	case json.Number:
		text = v.String()
	default:
		scalar = false
	}
	if known := knownExample(text, scalar, t, at); known != "" {
		return known
	}
	switch {
	case t.Kind() == reflect.Bool:
		switch strings.ToLower(text) {
		case "false", "no", "off", "0":
			return "false"
		}
		return "true"
	case isWhole(t), isFloat(t):
		name := ""
		if at != nil {
			name = at.name
		}
		return number(text, name, t)
	case t.Kind() == reflect.String && scalar:
		return quoted(text)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String && scalar:
		return "[" + quoted(text) + "]"
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.String:
		return `{"NAME": "value"}`
	}
	return ""
}

// quoted is text in JSON, as much of it as fits in a hint.
func quoted(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	b, err := json.Marshal(text)
	if err != nil { // text: cannot happen
		return `""`
	}
	return string(b)
}

// number reads what people write for a number: "4", "10m" of a field in
// milliseconds, "64MiB" of one in bytes. Where it is none, it is one that is.
func number(text, field string, t reflect.Type) string {
	bytes, ms := strings.HasSuffix(field, "_bytes"), strings.HasSuffix(field, "_ms")
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < 1<<53 {
		if isFloat(t) {
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
		whole := math.Ceil(f) // a part of an amount takes one more
		if field == "port" {
			whole = math.Floor(f)
		}
		return strconv.FormatInt(int64(whole), 10)
	}
	if n, err := sandbox.ParseTime(text); ms && err == nil {
		return strconv.FormatInt(n, 10)
	}
	if n, err := sandbox.ParseSize(text); bytes && err == nil {
		return strconv.FormatInt(n, 10)
	}
	switch {
	case ms:
		return "30000"
	case bytes:
		return "1048576"
	}
	return "1"
}
