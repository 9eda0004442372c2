package api

import (
	"bytes"
	"cmp"
	_ "embed" // the page's template and style
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// The page for readers is made here from the document, as plain HTML: nothing
// is loaded from anywhere, and no script runs.

//go:embed page.html
var pageTemplate string

//go:embed page.css
var pageStyle string

type page struct {
	Title, Version string
	Overview       []string
	Style          template.CSS
	Groups         []pageGroup
	Schemas        []pageSchema
}

type pageGroup struct {
	Name, Anchor, Description string
	Operations                []pageOperation
}

type pageOperation struct {
	Method, Path, ID, Summary string
	Description               []string
	Scopes                    string
	Parameters                []pageField
	Body                      *pageBody
	Answers, Errors           []pageAnswer
	Example                   string
}

type pageField struct {
	Name, In, Type, Ref, Text string
	Required                  bool
}

type pageBody struct{ MediaType, Ref, Text string }

type pageAnswer struct {
	Status, Text string
	Content      []pageContent
}

type pageContent struct{ MediaType, Ref, Sample string }

type pageSchema struct {
	Name   string
	Fields []pageField
}

// renderPage makes the page.
func renderPage(doc *huma.OpenAPI) ([]byte, error) {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return nil, err
	}
	p := page{
		Title: doc.Info.Title, Version: doc.Info.Version, Overview: strings.Split(doc.Info.Description, "\n\n"),
		Style: template.CSS(pageStyle), //nolint:gosec // a file of ours
	}
	for _, tag := range doc.Tags {
		p.Groups = append(p.Groups, pageGroup{Name: tag.Name, Anchor: strings.ToLower(tag.Name), Description: tag.Description, Operations: operations(doc, tag.Name)})
	}
	schemas := doc.Components.Schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		p.Schemas = append(p.Schemas, pageSchema{name, schemaFields(schemas[name])})
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// operations are those of one group, by path and then by method.
func operations(doc *huma.OpenAPI, tag string) []pageOperation {
	var all []pageOperation
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		item := doc.Paths[path]
		for _, op := range []*huma.Operation{item.Post, item.Get, item.Put, item.Patch, item.Delete} {
			if op != nil && slices.Contains(op.Tags, tag) {
				all = append(all, shownOperation(op))
			}
		}
	}
	// What passes to a server inside is the same for every method.
	all = slices.DeleteFunc(all, func(o pageOperation) bool {
		return strings.HasSuffix(o.Path, "/ports/{port}/{path}") && o.ID != "getPort"
	})
	for i := range all {
		if all[i].ID == "getPort" {
			all[i].Method, all[i].Summary = "ANY", "Speak to a server inside"
		}
	}
	return all
}

func shownOperation(op *huma.Operation) pageOperation {
	o := pageOperation{Method: op.Method, Path: op.Path, ID: op.OperationID, Summary: op.Summary}
	if op.Description != "" {
		o.Description = strings.Split(op.Description, "\n\n")
	}
	if scopes, ok := op.Extensions["x-scopes"].([]string); ok {
		o.Scopes = strings.Join(scopes, " or ")
	}
	if example, ok := op.Extensions["x-example"].(string); ok {
		o.Example = example
	}
	for _, p := range op.Parameters {
		typ, ref := typeOf(p.Schema)
		o.Parameters = append(o.Parameters, pageField{Name: p.Name, In: p.In, Type: typ, Ref: ref, Text: withDefault(p.Description, p.Schema), Required: p.Required})
	}
	if op.RequestBody != nil {
		for mediaType, content := range op.RequestBody.Content {
			_, ref := typeOf(content.Schema)
			o.Body = &pageBody{mediaType, ref, op.RequestBody.Description}
		}
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		a := shownAnswer(status, op.Responses[status])
		if status < "400" {
			o.Answers = append(o.Answers, a)
		} else {
			o.Errors = append(o.Errors, a)
		}
	}
	return o
}

func shownAnswer(status string, r *huma.Response) pageAnswer {
	a := pageAnswer{Status: status, Text: r.Description}
	for _, mediaType := range slices.Sorted(maps.Keys(r.Content)) {
		_, ref := typeOf(r.Content[mediaType].Schema)
		sample := ""
		if example := r.Content[mediaType].Example; example != nil {
			b, err := json.MarshalIndent(example, "", "  ")
			if err != nil {
				panic(err) // values of our own types
			}
			sample = string(b)
		}
		a.Content = append(a.Content, pageContent{mediaType, ref, sample})
	}
	return a
}

// typeOf names a schema's type, and the schema that it refers to.
func typeOf(s *huma.Schema) (typ, ref string) {
	switch {
	case s == nil:
		return "", ""
	case s.Ref != "":
		ref = s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		return ref, ref
	case s.Type == huma.TypeArray:
		typ, ref = typeOf(s.Items)
		return "list of " + typ, ref
	case s.Type == huma.TypeObject && s.AdditionalProperties != nil:
		if of, ok := s.AdditionalProperties.(*huma.Schema); ok {
			typ, ref = typeOf(of)
			return "map of " + cmp.Or(typ, "anything"), ref
		}
	case s.Format == "date-time":
		return "time", ""
	}
	return s.Type, ""
}

func withDefault(text string, s *huma.Schema) string {
	if s == nil || s.Default == nil {
		return text
	}
	b, err := json.Marshal(s.Default)
	if err != nil {
		return text
	}
	return text + " Default: " + string(b) + "." // texts in quotes: one of them is a full stop
}

func schemaFields(s *huma.Schema) []pageField {
	var all []pageField
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		typ, ref := typeOf(p)
		all = append(all, pageField{Name: name, Type: typ, Ref: ref, Text: withDefault(p.Description, p), Required: slices.Contains(s.Required, name)})
	}
	return all
}

// methodClass is the style of a method's label.
func (o pageOperation) Class() string {
	switch o.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return "write"
	case http.MethodDelete:
		return "delete"
	}
	return "read"
}
