// Package strictjson decodes requests that people write by hand: an unknown
// field, a field given twice, a value of the wrong type and trailing text are
// errors that name the field and, where it can, the field that was probably
// meant. It decodes into plain structs with JSON tags; types that implement
// json.Unmarshaler check their own insides. A zero or an empty text in a field with the tag
// zero:"refused" is an error, too.
//
// It is not a streaming decoder: the caller bounds the bytes of the input. How
// many values they hold is bounded here, before anything is made of them: two
// bytes of text can otherwise become a hundred in memory.
package strictjson

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// Decode decodes the one JSON value in data into v, a pointer to a struct.
// Every error is a *sandbox.Error; its Field is dotted from the root.
func Decode(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		e := invalid("", "there is no JSON")
		e.Hint = "send " + least(reflect.TypeOf(v))
		return e
	}
	if err := checkBytes(data); err != nil {
		return err
	}
	d := &walker{Decoder: json.NewDecoder(bytes.NewReader(data)), data: data, known: map[reflect.Type]map[string]reflect.Type{}}
	d.UseNumber()
	if err := d.check(reflect.TypeOf(v), nil); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalid("", "there is text after the JSON value")
	}
	err := json.Unmarshal(data, v)
	var known *sandbox.Error
	var typeErr *json.UnmarshalTypeError
	var coded base64.CorruptInputError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &typeErr): // what the walk has let through
		return invalid(typeErr.Field, "must be "+kindName(typeErr.Type)+", not "+typeErr.Value)
	case errors.As(err, &coded): // encoding/json does not say where
		return invalid("", "there is text that is not base64 where base64 belongs")
	}
	return sandbox.AsError(err)
}

// least says what must be sent, at least.
func least(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[sandbox.Spec]():
		return "a JSON object with language and code, or with files and entrypoint"
	case reflect.TypeFor[sandbox.Command]():
		return "a JSON object with args, or with shell"
	}
	var needed []string
	for f := range t.Fields() {
		if name, rest, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && !strings.Contains(rest, "omit") {
			needed = append(needed, name)
		}
	}
	if len(needed) == 0 {
		return "{}, with the fields that are to differ from their defaults"
	}
	return "a JSON object with " + strings.Join(needed, " and ")
}

const (
	// maxDepth bounds the walk's recursion; encoding/json itself allows 10,000.
	maxDepth = 64
	// maxValues bounds the values in one document. The largest that a request
	// may hold, 10,000 files with all their fields, are half as many.
	maxValues = 100_000
)

// checkBytes refuses what encoding/json would change or be made to swell by. It
// reads the bytes once and makes nothing.
func checkBytes(data []byte) error {
	if !utf8.Valid(data) { // encoding/json would replace the bytes in silence
		e := invalid("", "the text is not valid UTF-8")
		e.Hint = "send bytes that are not text as a file, with content_base64"
		return e
	}
	if CountValues(data, maxValues) > maxValues {
		return invalid("", "the JSON holds more than "+strconv.Itoa(maxValues)+" values")
	}
	return nil
}

// CountValues is how many values a JSON text has, at least; it stops soon after so
// many. It reads the bytes once and makes nothing.
func CountValues(data []byte, most int) int {
	values, inText := 1, false
	for i := 0; i < len(data) && values <= most; i++ {
		switch c := data[i]; {
		case c == '"':
			inText = !inText
		case c == '\\' && inText:
			i++
		case !inText && (c == ',' || c == '[' || c == '{'):
			values++
		}
	}
	return values
}

type walker struct {
	*json.Decoder

	data  []byte
	depth int
	known map[reflect.Type]map[string]reflect.Type // what members has found
}

// place is where a value stands. Its text is made only for an error.
type place struct {
	up    *place
	name  string // of a field; empty: an element of a list
	index int
	field bool
	shell bool // beside it may stand a shell line

	owner reflect.Type // of a field: the type that has it
}

func (p *place) String() string {
	if p == nil {
		return ""
	}
	above := p.up.String()
	switch {
	case !p.field:
		return above + "[" + strconv.Itoa(p.index) + "]"
	case above == "":
		return sandbox.SafeText(p.name, 60)
	}
	return above + "." + sandbox.SafeText(p.name, 60)
}

// check walks the tokens of one value beside the type it will go into.
func (d *walker) check(t reflect.Type, at *place) error {
	if d.depth++; d.depth > maxDepth {
		return invalid("", "the JSON is nested too deeply")
	}
	defer func() { d.depth-- }()
	token, err := d.next(at)
	if err != nil {
		return err
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if err := mismatch(token, t, at); err != nil {
		return err
	}
	if isZero(token) && at.refusesZero() {
		is := "is 0"
		if token == "" {
			is = "is empty"
		}
		return invalid(at.String(), is+", which would mean the default").WithAdvice(sandbox.Advise("%s for the default", sandbox.Omit(at.String())))
	}
	switch token {
	case json.Delim('{'):
		return d.checkObject(t, at)
	case json.Delim('['):
		return d.checkArray(t, at)
	}
	return nil
}

// next is the next token. Half a surrogate pair in a text, which is no character, is
// refused: encoding/json makes it another one in silence.
func (d *walker) next(at *place) (json.Token, error) {
	start := d.InputOffset()
	token, err := d.Token()
	if err != nil {
		return nil, d.syntaxError(err)
	}
	if text, ok := token.(string); ok && strings.ContainsRune(text, utf8.RuneError) {
		if half := loneSurrogate(d.data[start:d.InputOffset()]); half != "" {
			e := invalid(at.String(), half+" is half of a pair, and no character")
			e.Hint = `write the character itself, or both halves: \ud83d\ude00`
			return nil, e
		}
	}
	return token, nil
}

// loneSurrogate is the first escape in a text that is half a surrogate pair, or "".
func loneSurrogate(text []byte) string {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch r := escaped(text[i:]); {
		case !utf16.IsSurrogate(r):
			i++
		case utf16.DecodeRune(r, escaped(text[i+6:])) == utf8.RuneError:
			return string(text[i : i+6])
		default:
			i += 11
		}
	}
	return ""
}

// escaped is the unit of UTF-16 that a text begins with as an escape, or -1.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

// isZero says whether a value is what a field has that is not given.
func isZero(token json.Token) bool {
	n, ok := token.(json.Number)
	return token == "" || ok && strings.Trim(n.String(), "-0.") == ""
}

// within says whether the value is one of a list or a map, which have no default for null
// to mean.
func (p *place) within() bool {
	return p != nil && (!p.field || p.owner != nil && p.owner.Kind() == reflect.Map)
}

// refusesZero says whether the field has the tag zero:"refused": who gives it means
// something, and would get the default without a word.
func (p *place) refusesZero() bool {
	if p == nil || p.owner == nil || p.owner.Kind() != reflect.Struct {
		return false
	}
	for f := range p.owner.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == p.name {
			return f.Tag.Get("zero") == "refused"
		}
	}
	return false
}

func (d *walker) checkArray(t reflect.Type, at *place) error {
	var elem reflect.Type
	if t != nil && t.Kind() == reflect.Slice {
		elem = t.Elem()
	}
	where := &place{up: at}
	for ; d.More(); where.index++ {
		if err := d.check(elem, where); err != nil {
			return err
		}
	}
	return d.closing()
}

func (d *walker) checkObject(t reflect.Type, at *place) error {
	fields, elem := d.members(t)
	seen := map[string]bool{}
	where := &place{up: at, field: true, shell: fields["shell"] != nil, owner: t}
	for d.More() {
		token, err := d.next(at)
		if err != nil {
			return err
		}
		where.name, _ = token.(string)
		if seen[where.name] {
			e := invalid(where.String(), "is given twice")
			e.Hint = "leave one of the two out"
			return e
		}
		seen[where.name] = true
		inner, known := fields[where.name]
		if fields != nil && !known {
			return unknown(where.String(), where.name, fields)
		}
		if fields == nil {
			inner = elem
		} else if checksItself(t) {
			inner = nil
		}
		if err := d.check(inner, where); err != nil {
			return err
		}
	}
	return d.closing()
}

// members is the function of that name, asked once for each type.
func (d *walker) members(t reflect.Type) (fields map[string]reflect.Type, elem reflect.Type) {
	if fields, ok := d.known[t]; ok {
		return fields, nil
	}
	fields, elem = members(t)
	if fields != nil {
		d.known[t] = fields
	}
	return fields, elem
}

// members returns the JSON names of a struct's fields with their types, or,
// for a map, the type of its values. Both are nil for anything else.
func members(t reflect.Type) (fields map[string]reflect.Type, elem reflect.Type) {
	switch {
	case t == nil:
		return nil, nil
	case t.Kind() == reflect.Map:
		return nil, t.Elem()
	case t.Kind() != reflect.Struct:
		return nil, nil
	}
	fields = map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		fields[cmp.Or(name, f.Name)] = f.Type
	}
	return fields, nil
}

func (d *walker) closing() error {
	if _, err := d.Token(); err != nil {
		return d.syntaxError(err)
	}
	return nil
}

func unknown(where, name string, fields map[string]reflect.Type) error {
	names := slices.Sorted(maps.Keys(fields))
	e := invalid(where, "no such field")
	if hint := meantLimit(name, fields); hint != "" {
		e.Hint = hint
		return e
	}
	if near := cmp.Or(otherName(name, fields), nearest.Word(strings.ToLower(name), names)); near != "" {
		e.Hint = fmt.Sprintf("did you mean %q?", near)
	} else if len(names) > 0 {
		e.Hint = "the fields are " + strings.Join(names, ", ")
	}
	return e
}

// otherNames are what other APIs and people call fields, and what those may be here.
var otherNames = map[string][]string{
	"cmd": {"args"}, "command": {"args"}, "argv": {"args"}, "arguments": {"args"},
	"cwd": {"dir"}, "workdir": {"dir"}, "working_dir": {"dir"}, "working_directory": {"dir"},
	"dependencies": {"packages"}, "requirements": {"packages"},
	"environment": {"env"}, "envs": {"env"}, "env_vars": {"env"},
	"filename": {"path", "entrypoint"}, "file": {"path", "files"}, "name": {"path", "host"},
	"contents": {"content"}, "data": {"content"}, "text": {"content"},
	"image": {"template"}, "input": {"stdin"},
	"lang": {"language"}, "runtime": {"language"}, "script": {"code", "shell"}, "source": {"code"}, "source_code": {"code"},
	"tty": {"terminal"}, "pty": {"terminal"}, "labels": {"metadata"}, "tags": {"metadata"},
}

// otherName is the field that is meant by another name for it, or by one without its unit.
func otherName(name string, fields map[string]reflect.Type) string {
	name = strings.ToLower(name)
	without := strings.TrimSuffix(strings.TrimSuffix(name, "_seconds"), "_bytes")
	for _, there := range slices.Concat(otherNames[name], []string{without + "_ms", without + "_bytes"}) {
		if there == "args" && fields["code"] != nil { // those of a run's program are no command
			continue
		}
		if fields[there] != nil {
			return there
		}
	}
	return ""
}

func (d *walker) syntaxError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		e := invalid("", "the JSON ends too early")
		e.Hint = `send all of it: each {, [ and " needs the one that closes it`
		return e
	}
	return invalid("", fmt.Sprintf("the text is not JSON near byte %d: %s", d.InputOffset(), sandbox.SafeText(err.Error(), 120)))
}

// meantLimit is for who gives a limit the name of its flag, or gives it where
// limits do not stand.
func meantLimit(name string, fields map[string]reflect.Type) string {
	if name == "limits" && fields["wall_time_ms"] != nil { // those of a process
		return fmt.Sprintf(`write "wall_time_ms": %d without "limits"; the other limits are the sandbox's`, sandbox.DefaultLimits().WallTimeMS)
	}
	for _, info := range sandbox.LimitTable() {
		flag := strings.ReplaceAll(info.Flag, "-", "_")
		if name != info.Field && strings.ReplaceAll(name, "-", "_") != flag && name != flag+"_ms" {
			continue
		}
		if fields[info.Field] != nil {
			return fmt.Sprintf("did you mean %q?", info.Field)
		}
		if fields["limits"] != nil {
			return fmt.Sprintf(`write "limits": {"%s": %d}`, info.Field, sandbox.DefaultLimits().Get(info.Field))
		}
	}
	return ""
}

func invalid(field, message string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: message}
}
