package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"pinfold/sandbox"
)

var update = flag.Bool("update", false, "write openapi.json and docs.html anew")

// What the server gives is what the table of routes says.
func TestDocumentIsUpToDate(t *testing.T) {
	built := buildDocument()
	doc, err := built.MarshalJSON()
	if err == nil {
		doc, err = indent(doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	page, err := renderPage(built)
	if err != nil {
		t.Fatal(err)
	}
	for file, got := range map[string][]byte{"openapi.json": doc, "docs.html": page} {
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil { //nolint:gosec // for everybody
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is out of date: go test ./internal/api -run TestDocumentIsUpToDate -update", file)
		}
	}
}

// buildDocument makes the document from the table.
func buildDocument() *huma.OpenAPI {
	doc := humago.New(http.NewServeMux(), openapi(anyVersion)).OpenAPI()
	s := newServer(Options{Metrics: http.NotFoundHandler()})
	for _, rt := range s.routes() {
		if rt.hidden {
			continue
		}
		doc.AddOperation(operation(doc, rt))
	}
	finishSchemas(doc.Components.Schemas)
	return doc
}

func TestVersionIsFilledIn(t *testing.T) {
	doc, page := document("v1.2.3")
	for name, text := range map[string][]byte{"document": doc, "page": page} {
		if !bytes.Contains(text, []byte("v1.2.3")) || bytes.Contains(text, []byte(anyVersion)) {
			t.Errorf("the %s does not hold the version, or not where it belongs", name)
		}
	}
}

type schemaText struct {
	Ref         string                `json:"$ref"`
	Description string                `json:"description"`
	Properties  map[string]schemaText `json:"properties"`
	Required    []string              `json:"required"`
	Closed      any                   `json:"additionalProperties"`
}

type documentShape struct {
	Paths map[string]map[string]struct {
		OperationID string         `json:"operationId"`
		Summary     string         `json:"summary"`
		Tags        []string       `json:"tags"`
		Security    []any          `json:"security"`
		Responses   map[string]any `json:"responses"`
		Parameters  []struct{ Name, Description string }
	}
	Components struct {
		Schemas   map[string]schemaText
		Responses map[string]any
	}
}

func documentOf(t *testing.T) (doc documentShape, raw []byte) {
	t.Helper()
	raw, _ = document("v1")
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	return doc, raw
}

// A reader needs no other source than the document.
func TestEverythingIsDescribed(t *testing.T) {
	doc, raw := documentOf(t)
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			switch {
			case op.OperationID == "" || op.Summary == "" || len(op.Tags) != 1 || len(op.Security) == 0:
				t.Errorf("%s %s is not described", method, path)
			case ids[op.OperationID]:
				t.Errorf("%s: two operations have this name", op.OperationID)
			case op.Responses["500"] == nil:
				t.Errorf("%s %s does not say what errors look like", method, path)
			}
			ids[op.OperationID] = true
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s %s: %s is not described", method, path, p.Name)
				}
			}
		}
	}
	for name, schema := range doc.Components.Schemas {
		for field, p := range schema.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s is not described: add it to fieldMeanings", name, field)
			}
		}
	}
	for _, name := range requestTypes() {
		if doc.Components.Schemas[name].Closed != false {
			t.Errorf("%s is read strictly, and the document does not say so", name)
		}
	}
	for _, ref := range regexp.MustCompile(`"#/components/responses/([^"]+)"`).FindAllSubmatch(raw, -1) {
		if doc.Components.Responses[string(ref[1])] == nil {
			t.Errorf("%s is referred to, and not there", ref[1])
		}
	}
	for _, ref := range regexp.MustCompile(`"#/components/schemas/([^"]+)"`).FindAllSubmatch(raw, -1) {
		if _, ok := doc.Components.Schemas[string(ref[1])]; !ok {
			t.Errorf("%s is referred to, and not there", ref[1])
		}
	}
}

// Words for fields that are no more would be forgotten.
func TestNoMeaningIsLeftOver(t *testing.T) {
	doc, _ := documentOf(t)
	fields := map[string]bool{}
	for name, schema := range doc.Components.Schemas {
		for field := range schema.Properties {
			fields[name+"."+field], fields["*."+field] = true, true
		}
	}
	for _, some := range []map[string]string{fieldMeanings, policyMeanings} {
		for key := range some {
			if !fields[key] {
				t.Errorf("%s: there is no such field", key)
			}
		}
	}
	for key := range fieldWords() {
		if !fields[key] {
			t.Errorf("%s: there is no such field", key)
		}
	}
}

// The page holds every operation and every type, and loads nothing.
func TestPage(t *testing.T) {
	s := newServer(Options{Version: "v1"})
	doc, _ := documentOf(t)
	page := string(s.page)
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if !strings.Contains(page, `id="`+op.OperationID+`"`) && op.Tags[0] != "Ports" && op.OperationID != "metrics" {
				t.Errorf("%s %s is not on the page", method, path)
			}
		}
	}
	for name := range doc.Components.Schemas {
		if !strings.Contains(page, `id="type-`+name+`"`) {
			t.Errorf("%s is not on the page", name)
		}
	}
	for _, bad := range []string{"<script", "<link", "<img", "url(", "@import", "://"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %s", bad)
		}
	}
	for _, anchor := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+anchor[1]+`"`) {
			t.Errorf("a link to #%s leads nowhere", anchor[1])
		}
	}
}

// Every code that the vocabulary knows has a status, or is our own fault.
func TestEveryCodeHasAStatus(t *testing.T) {
	ours := []string{sandbox.CodeInternal, sandbox.CodeSetupFailed, sandbox.CodeStateCorrupt}
	known := statuses()
	for _, file := range []string{"error.go", "living.go"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "sandbox", file))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^\tCode\w+\s+= "([a-z_]+)"`).FindAllSubmatch(text, -1)
		if len(found) < 10 {
			t.Fatalf("%s: %d codes", file, len(found))
		}
		for _, m := range found {
			if code := string(m[1]); known[code] == 0 && !slices.Contains(ours, code) {
				t.Errorf("%s has no status", code)
			}
		}
	}
}
