package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"pinfold/sandbox"
)

// operation describes a route.
func operation(doc *huma.OpenAPI, rt route) *huma.Operation {
	registry := doc.Components.Schemas
	op := &huma.Operation{
		Method: rt.method, Path: rt.path, OperationID: rt.id, Tags: []string{rt.tag},
		Summary: rt.summary, Description: rt.description, Responses: map[string]*huma.Response{},
		Security: []map[string][]string{{}},
	}
	if len(rt.scopes) > 0 {
		op.Security = []map[string][]string{{"key": {}}, {"header": {}}}
		op.Extensions = map[string]any{"x-scopes": rt.scopes}
	}
	if rt.example != "" {
		if op.Extensions == nil {
			op.Extensions = map[string]any{}
		}
		op.Extensions["x-example"] = rt.example
	}
	op.Parameters = append(pathParameters(rt), queryParameters(rt)...)
	op.RequestBody = requestBody(registry, rt.body)
	for _, a := range rt.answers {
		addReply(registry, op, a)
	}
	addErrors(doc, op, rt)
	return op
}

func pathParameters(rt route) []*huma.Param {
	docs := map[string]string{
		"id": "The sandbox's id, sbx_….", "run": "The run's id, run_….", "process": "The process's id, prc_….", "snapshot": "The snapshot's id, snp_….", "index": "The entry's index, from 0.",
		"port": "The port on which a server inside listens.", "path": "The path in that server, with its query.", "name": "The pool's name.", "secret": "The secret's name.",
	}
	var all []*huma.Param
	for part := range strings.SplitSeq(rt.path, "/") {
		if !strings.HasPrefix(part, "{") {
			continue
		}
		name := strings.Trim(part, "{}.")
		schema := &huma.Schema{Type: huma.TypeString}
		switch name {
		case "id":
			schema.Pattern = `^sbx_[a-z2-7]{26}$`
		case "run", "process", "snapshot":
			schema.Pattern = `^` + map[string]string{"run": "run", "process": "prc", "snapshot": "snp"}[name] + `_[a-z2-7]{26}$`
		case "index":
			schema = &huma.Schema{Type: huma.TypeInteger, Minimum: number(0)}
		case "secret":
			schema.Pattern = `^[a-z0-9_-]{1,40}$`
		case "port":
			schema = &huma.Schema{Type: huma.TypeInteger, Minimum: number(1), Maximum: number(65535)}
		}
		all = append(all, &huma.Param{Name: name, In: "path", Required: true, Description: docs[name], Schema: schema})
	}
	return all
}

func number(n float64) *float64 { return &n }

func queryParameters(rt route) []*huma.Param {
	var all []*huma.Param
	for _, p := range rt.params {
		schema := &huma.Schema{Type: string(p.kind)}
		switch p.kind {
		case kindInt:
			schema.Minimum, schema.Maximum = number(float64(p.min)), number(float64(p.max))
		case kindDate:
			schema.Type, schema.Format = huma.TypeString, "date"
		case kindTime:
			schema.Type, schema.Format = huma.TypeString, "date-time"
		case kindMode:
			schema.Type, schema.Pattern = huma.TypeString, "^[0-7]{1,4}$"
		case kindText, kindBool:
		}
		for _, w := range p.words {
			schema.Enum = append(schema.Enum, w)
		}
		if p.fallback != "" {
			schema.Default = fallbackValue(p)
		}
		if p.many {
			schema = &huma.Schema{Type: huma.TypeArray, Items: schema}
		}
		all = append(all, &huma.Param{Name: p.name, In: "query", Required: p.required, Description: p.doc, Schema: schema})
	}
	for _, h := range rt.headers {
		all = append(all, &huma.Param{Name: h.name, In: "header", Description: h.doc, Schema: &huma.Schema{Type: huma.TypeString}})
	}
	return all
}

// fallbackValue is the default in the type of its schema.
func fallbackValue(p param) any {
	switch p.kind {
	case kindInt:
		if n, err := strconv.ParseInt(p.fallback, 10, 64); err == nil {
			return n
		}
	case kindBool:
		return p.fallback == "true"
	case kindText, kindDate, kindTime, kindMode:
	}
	return p.fallback
}

func requestBody(registry huma.Registry, b body) *huma.RequestBody {
	switch {
	case b.json != nil:
		return &huma.RequestBody{Required: true, Description: b.doc, Content: map[string]*huma.MediaType{
			typeJSON: {Schema: registry.Schema(b.json, true, "Request")},
		}}
	case b.raw != "":
		return &huma.RequestBody{Required: true, Description: b.doc, Content: map[string]*huma.MediaType{
			b.raw: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		}}
	}
	return nil
}

func addReply(registry huma.Registry, op *huma.Operation, a reply) {
	status := strconv.Itoa(a.status)
	r := op.Responses[status]
	if r == nil {
		r = &huma.Response{Description: a.doc}
		op.Responses[status] = r
	} else if a.doc != "" {
		r.Description += " " + a.doc
	}
	if a.mediaType == "" {
		return
	}
	if r.Content == nil {
		r.Content = map[string]*huma.MediaType{}
	}
	schema := &huma.Schema{Type: huma.TypeString}
	switch {
	case a.mediaType == typeEvents && a.json != nil:
		data := registry.Schema(a.json, true, "Event")
		schema.Description = "Server-sent events. Data is JSON."
		schema.Extensions = map[string]any{"x-event-data": data}
	case a.json != nil:
		schema = registry.Schema(a.json, true, "Answer")
	case a.mediaType != typeEvents:
		schema.Format = "binary"
	}
	r.Content[a.mediaType] = &huma.MediaType{Schema: schema}
	if sample := sampleOf(op.OperationID, a); sample != nil && a.mediaType == typeJSON {
		r.Content[a.mediaType].Example = sample
	}
}

// addErrors documents the errors of a route: those of its own and those that
// its shape brings.
func addErrors(doc *huma.OpenAPI, op *huma.Operation, rt route) {
	codes := append([]int{http.StatusForbidden, http.StatusInternalServerError}, rt.errors...)
	if len(rt.scopes) > 0 {
		codes = append(codes, http.StatusUnauthorized)
	}
	if len(rt.params) > 0 || rt.body.json != nil {
		codes = append(codes, http.StatusBadRequest)
	}
	if rt.body.json != nil {
		codes = append(codes, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if strings.Contains(rt.path, "{id}") {
		codes = append(codes, http.StatusNotFound, http.StatusGone)
	}
	for _, code := range codes {
		name := "Error" + strconv.Itoa(code)
		if doc.Components.Responses[name] == nil {
			doc.Components.Responses[name] = &huma.Response{
				Description: errorMeaning(code),
				Content:     map[string]*huma.MediaType{typeJSON: {Schema: doc.Components.Schemas.Schema(reflect.TypeFor[sandbox.ErrorBody](), true, "ErrorBody")}},
			}
		}
		op.Responses[strconv.Itoa(code)] = &huma.Response{Ref: "#/components/responses/" + name, Description: errorMeaning(code)}
	}
}

func errorMeaning(status int) string {
	meanings := map[int]string{
		400: "The request is malformed; field says where.", 401: "No API key, or one that is not valid.",
		403: "The key lacks the scope, or Host or Origin is not allowed.", 404: "No such object of yours.",
		406: "The media type that was asked for is not offered.", 409: "Not possible in the state in which the object is, or the idempotency key was used for another request.",
		410: "It has ended, or is no longer kept.", 413: "Larger than what is accepted.", 415: "The body is of another media type.",
		416: "The range is outside the file.", 422: "Understood, and refused: the code says why.", 429: "Full, or over your quota; Retry-After says when to come back.",
		500: "The server failed.", 502: "The server inside does not answer.", 503: "No new work is taken now; Retry-After says when to come back.", 507: "The host's disk is full.",
	}
	if m, ok := meanings[status]; ok {
		return m
	}
	return http.StatusText(status)
}

// indent makes the document readable as a file.
func indent(b []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeInternal, "the OpenAPI document: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
