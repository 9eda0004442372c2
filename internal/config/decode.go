package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// decoder puts a tree of nodes into a Config. It does it itself, instead of the
// YAML package, for the sake of its messages: where, which key, and what was
// meant.
type decoder struct {
	name  string
	where map[string]position
	wrong []error // what was found so far; the rest is read all the same
}

// Bounds on what a file may hold. They are far beyond what anybody writes.
const (
	maxItems  = 10_000
	maxString = 4096
)

func (d *decoder) root(n *yaml.Node, c *Config) error {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return nil
	}
	d.note(d.value(n, reflect.ValueOf(c).Elem(), ""))
	return errors.Join(d.wrong...)
}

// note keeps an error, and says whether there is none.
func (d *decoder) note(err error) bool {
	if err != nil {
		d.wrong = append(d.wrong, err)
	}
	return err == nil
}

// value decodes one node. A null leaves the default: that is what a key with
// nothing behind it looks like.
func (d *decoder) value(n *yaml.Node, v reflect.Value, at string) error {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return d.errorAt(n, at, "anchors and aliases are not accepted").WithHint("write the value out where it is used")
	case n.Style&yaml.TaggedStyle != 0:
		return d.errorAt(n, at, "tags such as %s are not accepted", sandbox.SafeText(n.Tag, 40))
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return nil
	}
	d.where[at] = position{n.Line, n.Column}
	switch {
	case v.Type() == reflect.TypeFor[sandbox.Limits]():
		return d.limits(n, v, at)
	case v.Type() == reflect.TypeFor[sandbox.Gate]():
		return d.gate(n, v, at)
	case v.Kind() == reflect.Struct:
		return d.object(n, v, at)
	case v.Kind() == reflect.Map:
		return d.byName(n, v, at)
	case v.Kind() == reflect.Slice:
		return d.list(n, v, at)
	}
	return d.scalar(n, v, at)
}

// pairs calls f for every key of a mapping.
func (d *decoder) pairs(n *yaml.Node, at string, f func(key string, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return d.errorAt(n, at, "must be keys with values, not %s", kindName(n))
	}
	if len(n.Content)/2 > maxItems {
		return d.errorAt(n, at, "has more than %d keys", maxItems)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0 {
			return d.errorAt(key, at, "a key must be a plain word")
		}
		where := join(at, sandbox.SafeText(key.Value, 60))
		if line, twice := seen[key.Value]; twice {
			return d.errorAt(key, where, "is given twice; the first time in line %d", line)
		}
		seen[key.Value] = key.Line
		d.note(d.placed(f(key.Value, n.Content[i+1]), key))
	}
	return nil
}

// unknownKey is an error that does not know its place yet.
type unknownKey struct {
	field, hint string
}

// Error implements error.
func (u *unknownKey) Error() string { return "no such key" }

func (d *decoder) placed(err error, key *yaml.Node) error {
	u, ok := err.(*unknownKey) //nolint:errorlint // it was made one call below and is never wrapped
	if !ok {
		return err
	}
	return d.errorAt(key, u.field, "no such key").WithHint(u.hint)
}

func (d *decoder) object(n *yaml.Node, v reflect.Value, at string) error {
	fields := map[string]reflect.Value{}
	for f := range v.Type().Fields() {
		if tag := f.Tag.Get("yaml"); tag != "" {
			fields[tag] = v.FieldByIndex(f.Index)
		}
	}
	return d.pairs(n, at, func(key string, value *yaml.Node) error {
		field, known := fields[key]
		if !known {
			return missing(at, key, fields)
		}
		return d.value(value, field, join(at, key))
	})
}

// missing says which key was probably meant: a slip of the pen, or a word that
// is part of the right one.
func missing[V any](at, key string, known map[string]V) error {
	names := slices.Sorted(maps.Keys(known))
	near := nearest.Word(strings.ToLower(key), names)
	for _, name := range names {
		if near == "" && len(key) > 2 && (strings.HasPrefix(name, key+"_") || strings.HasPrefix(key, name+"_")) {
			near = name
		}
	}
	u := &unknownKey{field: join(at, sandbox.SafeText(key, 60)), hint: "the keys here are " + strings.Join(names, ", ")}
	if near != "" {
		u.hint = fmt.Sprintf("did you mean %q?", near)
	} else if paths := elsewhere(reflect.TypeFor[Config](), key, ""); len(paths) > 0 {
		u.hint = fmt.Sprintf("did you mean %s? Keys stand below those that they belong to", strings.Join(paths, " or "))
	}
	return u
}

// elsewhere is where in a configuration there are keys of this name, with the keys
// above them.
func elsewhere(t reflect.Type, key, at string) (paths []string) {
	for f := range t.Fields() {
		tag := f.Tag.Get("yaml")
		switch {
		case tag == "":
		case tag == key && at != "":
			paths = append(paths, join(at, tag))
		case f.Type.Kind() == reflect.Struct:
			paths = append(paths, elsewhere(f.Type, key, join(at, tag))...)
		}
	}
	return paths
}

// byName decodes a mapping whose keys are names that the file chooses.
func (d *decoder) byName(n *yaml.Node, v reflect.Value, at string) error {
	v.Set(reflect.MakeMap(v.Type()))
	return d.pairs(n, at, func(key string, value *yaml.Node) error {
		elem, before := reflect.New(v.Type().Elem()).Elem(), len(d.wrong)
		if err := d.value(value, elem, join(at, sandbox.SafeText(key, 60))); err != nil {
			return err
		}
		if len(d.wrong) == before { // else half of it is missing
			v.SetMapIndex(reflect.ValueOf(key), elem)
		}
		return nil
	})
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, at string) error {
	if n.Kind != yaml.SequenceNode {
		return d.errorAt(n, at, "must be a list, not %s", kindName(n)).WithHint("write each value in a line of its own, after \"- \"")
	}
	if len(n.Content) > maxItems {
		return d.errorAt(n, at, "has more than %d values", maxItems)
	}
	out, before := reflect.MakeSlice(v.Type(), 0, len(n.Content)), len(d.wrong)
	for i, item := range n.Content {
		where := at + "[" + strconv.Itoa(i) + "]"
		elem := reflect.New(v.Type().Elem()).Elem()
		if item.Kind == yaml.ScalarNode && item.ShortTag() == "!!null" {
			d.note(d.errorAt(item, where, "is empty"))
		} else if d.note(d.value(item, elem, where)) {
			out = reflect.Append(out, elem)
		}
	}
	if len(d.wrong) == before { // else it is another list
		v.Set(out)
	}
	return nil
}

// limits decodes limits: the names of a request, whose values may carry units.
func (d *decoder) limits(n *yaml.Node, v reflect.Value, at string) error {
	known := map[string]sandbox.LimitInfo{"cpus": {Field: "cpus"}}
	for _, info := range sandbox.LimitTable() {
		known[info.Field] = info
	}
	out, _ := v.Addr().Interface().(*sandbox.Limits)
	return d.pairs(n, at, func(key string, value *yaml.Node) error {
		info, ok := known[key]
		switch {
		case !ok:
			return missing(at, key, known)
		case key == "cpus":
			return d.value(value, reflect.ValueOf(&out.CPUs).Elem(), join(at, key))
		}
		number, err := d.limit(value, info, join(at, key))
		out.Set(key, number)
		return err
	})
}

// limit decodes one limit: a number in the limit's unit, or a text with one.
func (d *decoder) limit(n *yaml.Node, info sandbox.LimitInfo, at string) (int64, error) {
	var number int64
	var size Size
	var duration time.Duration
	target := reflect.ValueOf(&number).Elem()
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!int" {
		switch info.Unit {
		case sandbox.UnitMilliseconds:
			target = reflect.ValueOf(&duration).Elem()
		case sandbox.UnitBytes:
			target = reflect.ValueOf(&size).Elem()
		case sandbox.UnitCount:
		}
	}
	err := d.value(n, target, at)
	return max(number, int64(size), duration.Milliseconds()), err // one of them was set
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, at string) error {
	if n.Kind != yaml.ScalarNode {
		return d.errorAt(n, at, "must be %s, not %s", wanted(v), kindName(n))
	}
	if len(n.Value) > maxString {
		return d.errorAt(n, at, "is longer than %d bytes", maxString)
	}
	if err := set(v, n); err != nil {
		delete(d.where, at) // as if it were not there, for what is checked later
		known := *sandbox.AsError(err)
		known.Code, known.Field = sandbox.CodeConfigInvalid, at
		known.Message = d.place(n) + ": " + known.Message
		return &known
	}
	return nil
}

// set puts a scalar into a value of one of the kinds that a Config has.
func set(v reflect.Value, n *yaml.Node) error {
	notA := func() error {
		return invalid("", "\"%s\" is not %s", sandbox.SafeText(n.Value, 40), wanted(v))
	}
	switch v.Interface().(type) {
	case time.Duration:
		ms, err := sandbox.ParseTime(n.Value)
		switch {
		case err != nil:
			return err
		case ms > math.MaxInt64/int64(time.Millisecond):
			return notA()
		}
		v.SetInt(ms * int64(time.Millisecond))
		return nil
	case Size:
		size, err := sandbox.ParseSize(n.Value)
		if err == nil {
			v.SetInt(size)
		}
		return err
	case string:
		v.SetString(n.Value)
		return nil
	case bool:
		if n.Value != "true" && n.Value != "false" {
			return notA()
		}
		v.SetBool(n.Value == "true")
		return nil
	case int, int64:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil || n.ShortTag() != "!!int" || v.OverflowInt(i) {
			return notA()
		}
		v.SetInt(i)
		return nil
	case float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return notA()
		}
		v.SetFloat(f)
		return nil
	}
	panic("config: no way to read a " + v.Type().String()) // every kind that Config has is above
}

// wanted names what belongs into a value, for messages.
func wanted(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Duration:
		return "a time such as 30s"
	case Size:
		return "a size such as 64MiB"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case float64:
		return "a number"
	}
	return "a whole number in range"
}

func kindName(n *yaml.Node) string {
	switch n.Kind { //nolint:exhaustive // the others do not reach us
	case yaml.MappingNode:
		return "keys with values"
	case yaml.SequenceNode:
		return "a list"
	}
	return "one value"
}

// place is where a node stands, as editors and compilers write it.
func (d *decoder) place(n *yaml.Node) string {
	return fmt.Sprintf("%s:%d:%d", d.name, n.Line, n.Column)
}

func (d *decoder) errorAt(n *yaml.Node, field, format string, args ...any) *sandbox.Error {
	return invalid(field, "%s: %s", d.place(n), fmt.Sprintf(format, args...))
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}
