package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// MaxDeclaration bounds a declaration, in bytes.
const MaxDeclaration = 8 << 20

// Parse reads a declaration, in YAML or JSON. Every error is a *sandbox.Error that names
// the field.
func Parse(text []byte) (*Declaration, error) {
	if len(text) > MaxDeclaration {
		return nil, (&sandbox.Error{Code: sandbox.CodeTooLarge, Message: fmt.Sprintf("the declaration has more than %d bytes", MaxDeclaration)}).
			WithHint("put what is large into files beside it, and name them")
	}
	asJSON, err := toJSON(text)
	if err != nil {
		return nil, err
	}
	d := &Declaration{}
	if err := strictjson.Decode(asJSON, d); err != nil {
		return nil, quoted(err)
	}
	return d, d.Validate()
}

// quoted mends the hint about a number where text belongs: what YAML makes of 0755 is
// another number, and a limit has a unit.
func quoted(err error) error {
	e := sandbox.AsError(err)
	if !strings.HasPrefix(e.Message, "must be a string, not ") {
		return err
	}
	switch _, name, _ := strings.Cut(e.Field, "."); {
	case strings.HasPrefix(e.Field, "files[") && name == "mode":
		return e.WithHint("write it in quotes: mode: \"0755\" for a program, or leave it out")
	case e.Field == "limits.time", e.Field == "limits.ready":
		return e.WithHint("write it with its unit, like 15m; leave it out for the default")
	case e.Field == "limits.memory", e.Field == "limits.disk":
		return e.WithHint("write it with its unit, like 2GiB; leave it out for the default")
	}
	return err
}

// toJSON makes JSON of YAML, which JSON is, too.
func toJSON(text []byte) ([]byte, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithUniqueKeys(true), yaml.WithPlugin(loaderlimits.New()))
	if err != nil {
		return nil, err
	}
	bad := func(why string) error {
		return invalid("", why).WithHint("write YAML or JSON; docs/templates.md has an example")
	}
	var tree yaml.Node
	if err := loader.Load(&tree); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, bad("the declaration is empty")
		}
		return nil, bad("the declaration is not YAML: " + sandbox.SafeText(err.Error(), 300))
	}
	if err := loader.Load(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, bad("there is something behind the declaration")
	}
	if err := plain(&tree, 0); err != nil {
		return nil, err
	}
	var v any
	if err := tree.Decode(&v); err != nil {
		return nil, bad("the declaration is not YAML: " + sandbox.SafeText(err.Error(), 300))
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, bad("the declaration must be keys with values")
	}
	asJSON, err := json.Marshal(v)
	if err != nil {
		return nil, bad("the declaration has something that JSON cannot say: " + sandbox.SafeText(err.Error(), 300))
	}
	return asJSON, nil
}

// maxNested bounds how deep a declaration's values lie in each other.
const maxNested = 16

// plain refuses what makes a small text large, or says something else than it seems to.
func plain(n *yaml.Node, depth int) error {
	switch {
	case depth > maxNested:
		return invalid("", "the declaration's values lie too deep in each other").WithHint("docs/templates.md has an example")
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return invalid("", fmt.Sprintf("line %d: anchors and aliases are not accepted", n.Line)).WithHint("write the value out where it is used")
	case n.Style&yaml.TaggedStyle != 0:
		return invalid("", fmt.Sprintf("line %d: tags such as %s are not accepted", n.Line, sandbox.SafeText(n.Tag, 40))).WithHint("leave them out")
	}
	for _, c := range n.Content {
		if err := plain(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// invalid is the error for a declaration that breaks a rule.
func invalid(field, why string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: why}
}

// below puts a field before that of an error.
func below(field string, err error) error {
	e := sandbox.AsError(err)
	if e.Field == "" {
		return e.WithField(field)
	}
	return e.WithField(field + "." + e.Field)
}
