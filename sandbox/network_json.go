package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// networkObject is a Network in JSON, where it is more than a word.
type networkObject struct {
	Endpoints []Endpoint    `json:"endpoints"`
	Limits    NetworkLimits `json:"limits,omitzero"`
}

// MarshalJSON writes "none", or the object.
func (n Network) MarshalJSON() ([]byte, error) {
	if n.Endpoints == nil && n.Limits == (NetworkLimits{}) {
		mode := n.Mode
		if mode == "" {
			mode = NetworkNone
		}
		return json.Marshal(mode)
	}
	return json.Marshal(networkObject{Endpoints: n.Endpoints, Limits: n.Limits})
}

// UnmarshalJSON reads what MarshalJSON writes, strictly: what it does not know is
// refused and not left out, since somebody believes in it.
func (n *Network) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	var out Network
	switch {
	case bytes.Equal(data, []byte("null")):
		return nil
	case len(data) > 0 && data[0] == '"':
		if err := json.Unmarshal(data, &out.Mode); err != nil {
			return err
		}
	default:
		o := object{field: "network", is: `an object, or "none"`, known: map[string]func(string, json.RawMessage) error{
			"endpoints": out.readEndpoints, "limits": out.Limits.read,
		}}
		if err := o.read(data); err != nil {
			return err
		}
	}
	*n = out
	return nil
}

func (n *Network) readEndpoints(field string, data json.RawMessage) error {
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil {
		return specError(field, "must be a list").WithHint(`write "endpoints": [{"host": "api.example.com"}]`)
	}
	if len(list) > MaxEndpoints {
		return tooLarge(field, int64(len(list)), MaxEndpoints)
	}
	n.Endpoints = make([]Endpoint, len(list))
	for i, raw := range list {
		if err := n.Endpoints[i].read(fmt.Sprintf("%s[%d]", field, i), raw); err != nil {
			return err
		}
	}
	return nil
}

// words reads a list of texts, of which there are not more than most.
func words(into *[]string, most int, example string) func(string, json.RawMessage) error {
	return func(field string, data json.RawMessage) error {
		if json.Unmarshal(data, into) != nil {
			return specError(field, "must be a list of strings").WithHint(example)
		}
		if len(*into) > most {
			return tooLarge(field, int64(len(*into)), int64(most))
		}
		if *into != nil && len(*into) == 0 { // nothing, or everything?
			return specError(field, "is empty").WithHint("leave it out where all are meant")
		}
		return nil
	}
}

func (e *Endpoint) read(field string, data json.RawMessage) error {
	return object{field: field, is: `an object such as {"host": "api.example.com"}`, known: map[string]func(string, json.RawMessage) error{
		"host":    text(&e.Host),
		"set":     text(&e.Set),
		"address": text(&e.Address),
		"ports": func(field string, data json.RawMessage) error {
			if json.Unmarshal(data, &e.Ports) != nil {
				return specError(field, "must be a list of whole numbers").WithHint(fmt.Sprintf(`write "ports": [%d]`, DefaultPort))
			}
			return nil
		},
		"methods": words(&e.Methods, MaxMethods, `write "methods": ["GET"]`),
		"paths":   words(&e.Paths, MaxPaths, `write "paths": ["/repos/**"]`),
		"secret":  text(&e.Secret),
	}}.read(data)
}

func (l *NetworkLimits) read(field string, data json.RawMessage) error {
	count := func(into *int64) func(string, json.RawMessage) error {
		return func(field string, data json.RawMessage) error {
			v, ok := wholeNumber(data)
			if !ok || v <= 0 {
				return (&Error{Code: CodeLimitInvalid, Field: field, Message: SafeText(string(data), 40) + " is not a whole number of 1 or more"}).
					WithHint("leave it out for the default; zero does not mean unlimited")
			}
			*into = v
			return nil
		}
	}
	return object{field: field, is: "an object", known: map[string]func(string, json.RawMessage) error{
		"connections": count(&l.Connections), "bytes_up": count(&l.BytesUp), "bytes_down": count(&l.BytesDown), "requests": count(&l.Requests),
	}}.read(data)
}

func text(into *string) func(string, json.RawMessage) error {
	return func(field string, data json.RawMessage) error {
		if json.Unmarshal(data, into) != nil {
			return specError(field, "must be a string")
		}
		return nil
	}
}

// otherNames are what people call fields of a network, and what they mean.
var otherNames = map[string]string{
	"name": "host", "hostname": "host", "domain": "host", "url": "host", "ip": "address",
	"port": "ports", "method": "methods", "path": "paths", "endpoint": "endpoints", "hosts": "endpoints", "allow": "endpoints",
}

// object reads the fields of an object, strictly.
type object struct {
	field, is string
	known     map[string]func(field string, data json.RawMessage) error
}

func (o object) read(data json.RawMessage) error {
	var raw map[string]json.RawMessage
	if json.Unmarshal(data, &raw) != nil || raw == nil {
		return specError(o.field, "must be "+o.is)
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		field := strings.TrimPrefix(o.field+"."+SafeText(name, 60), ".")
		read, ok := o.known[name]
		if !ok {
			if meant := otherNames[name]; o.known[meant] != nil {
				return specError(field, "no such field").WithHint(fmt.Sprintf("did you mean %q?", meant))
			}
			return specError(field, "no such field").WithHint("the fields are " + strings.Join(slices.Sorted(maps.Keys(o.known)), ", "))
		}
		if bytes.Equal(bytes.TrimSpace(raw[name]), []byte("null")) {
			continue
		}
		if err := read(field, raw[name]); err != nil {
			return err
		}
	}
	return nil
}
