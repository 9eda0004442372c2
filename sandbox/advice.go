package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// FixKind is a kind of fix.
type FixKind string

// The kinds of fixes, and what the other fields of a Fix are for each.
const (
	FixText    FixKind = "text"    // Text is plain advice, the same at every edge
	FixSet     FixKind = "set"     // give the request's field Name the Value
	FixOmit    FixKind = "omit"    // leave the request's field Name out
	FixCopy    FixKind = "copy"    // copy the caller's file or directory Name into the sandbox
	FixCommand FixKind = "command" // run Text in a shell of the host
	FixConfig  FixKind = "config"  // change the key Name of the server's configuration
	FixCall    FixKind = "call"    // call the operation Name
)

// FixKinds lists the kinds of fixes.
func FixKinds() []FixKind {
	return []FixKind{FixText, FixSet, FixOmit, FixCopy, FixCommand, FixConfig, FixCall}
}

// Fix is one thing to do about an error, a cause or a gap, as data. Fields are
// named as in JSON, dotted from the root ("limits.memory_bytes").
type Fix struct {
	Kind  FixKind         `json:"kind"`
	Name  string          `json:"name,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	Text  string          `json:"text,omitempty"`
}

// Text is plain advice.
func Text(text string) Fix { return Fix{Kind: FixText, Text: text} }

// Set gives a field a value, which must be one that JSON can hold.
func Set(field string, value any) Fix {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // the author's mistake: values are numbers, words and lists of them
	}
	return Fix{Kind: FixSet, Name: field, Value: raw}
}

// Omit leaves a field out.
func Omit(field string) Fix { return Fix{Kind: FixOmit, Name: field} }

// Copy brings a file or directory of the caller into the sandbox.
func Copy(path string) Fix { return Fix{Kind: FixCopy, Name: path} }

// HostCommand is for a shell of the host that makes the sandboxes.
func HostCommand(line string) Fix { return Fix{Kind: FixCommand, Text: line} }

// Config names a key of the server's configuration.
func Config(key string) Fix { return Fix{Kind: FixConfig, Name: key} }

// The operations that fixes name, by their ids in the API's document.
const (
	CallCreateSandbox = "createSandbox"
	CallListPools     = "listPools"
	CallListRuns      = "listRuns"
	CallListSandboxes = "listSandboxes"
	CallListSnapshots = "listSnapshots"
	CallResumeSandbox = "resumeSandbox"
)

// Call names an operation, one of the above.
func Call(operation string) Fix { return Fix{Kind: FixCall, Name: operation} }

// calls are the operations in HTTP and as methods of client.Client.
var calls = map[string]struct{ http, method string }{
	CallCreateSandbox: {"POST /v1/sandboxes", "Create"},
	CallListPools:     {"GET /v1/pools", "Pools"},
	CallListRuns:      {"GET /v1/runs", "Runs"},
	CallListSandboxes: {"GET /v1/sandboxes", "Sandboxes"},
	CallListSnapshots: {"GET /v1/snapshots", "Snapshots"},
	CallResumeSandbox: {"POST /v1/sandboxes/{id}/resume", "Resume"},
}

// Calls lists the operations that fixes name.
func Calls() []string { return slices.Sorted(maps.Keys(calls)) }

// Advice is a sentence with fixes in it. Every edge says the fixes in words of
// its own: HTTP in JSON's, the command line in flags, Go in fields. No edge reads
// what another has said.
type Advice []Fix

// Advise makes an advice of a text in which each %s is a fix.
func Advise(text string, fixes ...Fix) Advice {
	var a Advice
	for i, part := range strings.Split(text, "%s") {
		if i > 0 {
			a = append(a, fixes[i-1])
		}
		if part != "" {
			a = append(a, Text(part))
		}
	}
	return a
}

// Say says the advice in the words of an edge: what they are not asked for is the
// same everywhere. It is "" where the edge has no words for one of the fixes.
func (a Advice) Say(words func(Fix) string) string {
	var b strings.Builder
	for _, f := range a {
		said := f.Text
		if f.Kind != FixText && f.Kind != FixCommand {
			if said = words(f); said == "" {
				return ""
			}
		}
		b.WriteString(said)
	}
	return b.String()
}

// Find returns the first fix of a kind.
func (a Advice) Find(kind FixKind) (f Fix, ok bool) {
	for _, f := range a {
		if f.Kind == kind {
			return f, true
		}
	}
	return f, false
}

// attach returns what a hint and its data are: a text alone has no data.
func (a Advice) attach() (hint string, data Advice) {
	for _, f := range a {
		if f.Kind != FixText {
			data = a
		}
	}
	return a.Say(Fix.JSON), data
}

// WithAdvice returns a copy of e that carries the advice.
func (e *Error) WithAdvice(a Advice) *Error {
	c := *e
	c.Hint, c.Advice = a.attach()
	return &c
}

// WithAdvice returns a copy of c that carries the advice.
func (c Cause) WithAdvice(a Advice) Cause {
	c.Hint, c.Advice = a.attach()
	return c
}

// WithAdvice returns a copy of g that carries the advice.
func (g Gap) WithAdvice(a Advice) Gap {
	g.Fix, g.Advice = a.attach()
	return g
}

// JSON says a fix to those who write requests in JSON: what works when pasted into one.
func (f Fix) JSON() string {
	switch f.Kind {
	case FixText, FixCommand:
		return f.Text
	case FixSet:
		var b bytes.Buffer
		_ = json.Indent(&b, f.Value, "", "") // of Set, or read from JSON
		value := strings.NewReplacer(",\n", ", ", "\n", "").Replace(b.String())
		outer, inner, nested := strings.Cut(f.Name, ".")
		if nested {
			return fmt.Sprintf(`"%s": {"%s": %s}`, outer, inner, value)
		}
		return fmt.Sprintf(`"%s": %s`, outer, value)
	case FixOmit:
		return "leave " + f.Name + " out"
	case FixCopy:
		return f.Name + ` in "files"`
	case FixConfig:
		return f.Name + " in the server's configuration"
	case FixCall:
		return calls[f.Name].http
	}
	return ""
}

// String says the advice to those who write Go: in assignments to fields of Spec,
// Create, Command and PoolSpec that compile when pasted, and names of methods.
func (a Advice) String() string { return a.Say(Fix.inGo) }

func (f Fix) inGo() string {
	switch f.Kind {
	case FixSet:
		path, value := goField(f.Name)
		if path == "" || json.Unmarshal(f.Value, value.Interface()) != nil {
			return f.JSON()
		}
		if value = value.Elem(); value.Kind() == reflect.Pointer {
			return fmt.Sprintf("%s = &%#v", path, value.Elem())
		}
		return fmt.Sprintf("%s = %#v", path, value)
	case FixOmit:
		if path, _ := goField(f.Name); path != "" {
			return "leave " + path + " out"
		}
		return f.JSON()
	case FixCopy:
		return f.Name + " in Files"
	case FixConfig:
		switch name, _, _ := strings.Cut(f.Name, "."); name {
		case "capacity":
			return "Options.Capacity"
		case "state":
			return "Options.StateDir"
		}
		return f.Name
	case FixCall:
		return calls[f.Name].method
	}
	return f.JSON()
}

// goField is the Go field behind one in JSON, and a pointer to a new value of its
// type; "" where requests have none.
func goField(name string) (path string, value reflect.Value) {
	for _, request := range []reflect.Type{reflect.TypeFor[Spec](), reflect.TypeFor[Create](), reflect.TypeFor[Command](), reflect.TypeFor[PoolSpec]()} {
		if path, of := fieldOf(request, name); of != nil {
			return path, reflect.New(of)
		}
	}
	return "", value
}

func fieldOf(t reflect.Type, name string) (path string, of reflect.Type) {
	first, rest, nested := strings.Cut(name, ".")
	for _, f := range reflect.VisibleFields(t) {
		switch tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case tag != first:
		case !nested:
			return f.Name, f.Type
		case f.Type.Kind() == reflect.Struct:
			path, of = fieldOf(f.Type, rest)
			return f.Name + "." + path, of
		}
	}
	return "", nil
}
