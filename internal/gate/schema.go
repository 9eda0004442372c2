package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"pinfold/sandbox"
)

// Bounds on schemas and on what is held against them. The work of one comparison is
// counted in steps, of a part of a schema against a part of a value.
const (
	maxSchemaDepth  = 64
	maxSchemaValues = 10_000
	maxPatternBytes = 1000
	maxPatternSize  = 10_000 // instructions
	maxValueBytes   = 8 << 20
	maxValueDepth   = 200
	maxValues       = 500_000
	maxNumberBytes  = 400
	maxExponent     = 1000
	maxSteps        = 2_000_000
	maxSchemaTime   = 5 * time.Second
	largeValue      = 256 << 10 // such are compared one after another, for their memory's sake
)

// schemaTurn is held while a large value is compared.
var schemaTurn sync.Mutex

// schema is one that was compiled. It is for one goroutine.
type schema struct {
	of, path string
	text     string
	check    *check
	root     *jsonschema.Schema
	budget   *budget
	steps    int
	seen     bool // an artifact was held against it
}

// budget counts the steps of one comparison. What is spent ends it by a panic with
// errSpent: the library has no other way out.
type budget struct {
	left  int
	until time.Time
}

var errSpent = errors.New("gate: comparing takes too long")

func (b *budget) spend(n int) {
	before := b.left
	b.left -= n
	if b.left < 0 || before>>12 != b.left>>12 && time.Now().After(b.until) {
		panic(errSpent)
	}
}

// nowhere loads nothing: schemas refer to themselves only.
type nowhere struct{}

func (nowhere) Load(string) (any, error) {
	return nil, errors.New("it refers to another document")
}

const schemaURL = "pinfold://gate/schema"

// compile reads a schema. field is where it stands in the request.
func compile(s sandbox.GateSchema, field string) (x *schema, err error) {
	wrong := func(why, hint string) error {
		return (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: why}).WithHint(hint)
	}
	doc, why := decode(s.Schema, maxSchemaDepth, maxSchemaValues)
	if why != "" {
		return nil, wrong("the schema "+why, `write JSON Schema, such as {"type": "object", "required": ["total"]}`)
	}
	x = &schema{of: s.Of, path: s.Path, text: string(s.Schema), steps: maxSteps, budget: &budget{left: maxSteps, until: time.Now().Add(maxSchemaTime)}}
	defer func() {
		if p := recover(); p != nil { // a fault of the library's, or its limit
			x, err = nil, wrong("the schema cannot be compiled", "make it simpler")
		}
	}()
	c := jsonschema.NewCompiler()
	c.UseLoader(nowhere{})
	c.UseRegexpEngine(x.budget.pattern)
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: "pinfold:budget", Compile: x.budget.count})
	c.AssertVocabs()
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, wrong("the schema cannot be used: "+explain(err), hintSchema)
	}
	if x.root, err = c.Compile(schemaURL); err != nil {
		return nil, wrong("the schema cannot be used: "+explain(err), hintSchema)
	}
	return x, nil
}

const hintSchema = "it may refer to itself only, as in {\"$ref\": \"#/$defs/item\"}, and its patterns are those of RE2"

// explain is an error of the library's, in one short line.
func explain(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	line := lines[len(lines)-1]
	for _, l := range lines[1:] {
		if !strings.HasSuffix(l, "failed") { // the first reason, behind what failed for it
			line = l
			break
		}
	}
	line = strings.TrimLeft(line, " -")
	return sandbox.SafeText(strings.ReplaceAll(line, schemaURL, "schema"), 200)
}

// count makes every part of a schema spend of the budget when it is used.
func (b *budget) count(_ *jsonschema.CompilerContext, obj map[string]any) (jsonschema.SchemaExt, error) {
	weight := 1
	for _, v := range obj {
		switch v := v.(type) {
		case []any:
			weight += len(v)
		case map[string]any:
			weight += len(v)
		default:
			weight++
		}
	}
	return &counted{b, weight}, nil
}

type counted struct {
	budget *budget
	weight int
}

// Validate implements jsonschema.SchemaExt.
func (c *counted) Validate(_ *jsonschema.ValidatorContext, v any) {
	size := 1
	switch v := v.(type) {
	case []any:
		size += len(v)
	case map[string]any:
		size += len(v)
	case string:
		size += len(v) >> 8
	}
	c.budget.spend(1 + c.weight*size>>3)
}

// pattern compiles a regular expression, whose use spends of the budget, too.
func (b *budget) pattern(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPatternBytes {
		return nil, fmt.Errorf("a pattern is longer than %d bytes", maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > maxPatternSize {
		return nil, errors.New("a pattern is too large")
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &boundedPattern{re, b, len(program.Inst)}, nil
}

type boundedPattern struct {
	*regexp.Regexp

	budget *budget
	size   int
}

// MatchString implements jsonschema.Regexp.
func (p *boundedPattern) MatchString(s string) bool {
	p.budget.spend(1 + len(s)*p.size>>6)
	return p.Regexp.MatchString(s)
}

// fault says what is wrong with a text by the schema, and nothing that is in it; "" for
// nothing.
func (s *schema) fault(data []byte) (why string) {
	if len(data) > largeValue {
		schemaTurn.Lock()
		defer schemaTurn.Unlock()
	}
	value, why := decode(data, maxValueDepth, maxValues)
	if why != "" {
		return why
	}
	s.budget.left, s.budget.until = s.steps, time.Now().Add(maxSchemaTime)
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == any(errSpent):
			why = "takes too long to be held against the schema"
		default: // a fault of the library's: nothing is let through for it
			why = "cannot be held against the schema"
		}
	}()
	err := s.root.Validate(value)
	var wrong *jsonschema.ValidationError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &wrong):
		return "does not match the schema: " + s.place(wrong)
	}
	return "cannot be held against the schema"
}

// place is the first place that does not match, and the keyword by which. Names are told
// only if the schema has them: others are the guest's words.
func (s *schema) place(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	var at strings.Builder
	for i, name := range e.InstanceLocation {
		if i == 16 {
			at.WriteString("/…")
			break
		}
		if _, err := strconv.Atoi(name); err != nil && !strings.Contains(s.text, strconv.Quote(name)) {
			name = "*"
		}
		at.WriteString("/" + sandbox.SafeText(name, 60))
	}
	where := "the whole"
	if at.Len() > 0 {
		where = at.String()
	}
	if words := e.ErrorKind.KeywordPath(); len(words) > 0 {
		return where + " (" + sandbox.SafeText(strings.Join(words, "/"), 100) + ")"
	}
	return where
}

// decode reads JSON within bounds; why says what is wrong with it.
func decode(data []byte, depth, values int) (doc any, why string) {
	if len(data) > maxValueBytes {
		return nil, "is larger than " + sandbox.FormatSize(maxValueBytes)
	}
	pairs, why := bounded(data, depth, values)
	if why != "" {
		return nil, why
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return nil, "is not JSON"
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, "is more than one JSON value"
	}
	if pairsIn(doc) < pairs { // of the two values one reader takes the first and another the last
		return nil, "has an object with the same name twice"
	}
	return doc, ""
}

// pairsIn is how many names with values there are in a value's objects.
func pairsIn(doc any) (n int) {
	switch doc := doc.(type) {
	case []any:
		for _, v := range doc {
			n += pairsIn(v)
		}
	case map[string]any:
		n = len(doc)
		for _, v := range doc {
			n += pairsIn(v)
		}
	}
	return n
}

// bounded looks at the bytes of a JSON text: how deep it is nested, how many values it has
// at most, and how large its numbers are. A number such as 1e999999999 would be written
// out to be compared. pairs is how many names with values it has.
func bounded(data []byte, depth, values int) (pairs int, why string) {
	level, count, inText := 0, 1, false
	for i := 0; i < len(data); i++ {
		switch b := data[i]; {
		case inText && b == '\\':
			i++
		case b == '"':
			inText = !inText
		case inText:
		case b == ':':
			pairs++
		case b == '[' || b == '{':
			level++
			count++
		case b == ']' || b == '}':
			level--
		case b == ',':
			count++
		case strings.IndexByte("-0123456789", b) >= 0:
			n := numeral(data[i:])
			if !isModest(data[i : i+n]) {
				return 0, "has a number that is too large"
			}
			i += n - 1
		}
		if level > depth {
			return 0, "is nested too deeply"
		}
		if count > values {
			return 0, fmt.Sprintf("has more than %d values", values)
		}
	}
	return pairs, ""
}

// numeral is how many bytes the number has that begins here.
func numeral(data []byte) int {
	n := 1
	for n < len(data) && strings.IndexByte("0123456789.eE+-", data[n]) >= 0 {
		n++
	}
	return n
}

func isModest(number []byte) bool {
	if len(number) > maxNumberBytes {
		return false
	}
	_, exponent, ok := bytes.Cut(bytes.ToLower(number), []byte{'e'})
	if !ok {
		return true
	}
	n, err := strconv.Atoi(string(exponent))
	return err == nil && -maxExponent <= n && n <= maxExponent
}

// matches holds a part against the schemas that are for it. It says whether the part may
// be seen.
func (g *Gate) matches(of string, p part, cut bool) bool {
	kept := true
	for _, s := range g.schemas {
		if s.of != of || of == sandbox.GateArtifact && !s.isFor(p.path) {
			continue
		}
		s.seen = true
		why := "was cut at a limit, so it cannot match the schema"
		if !cut {
			why = s.fault(p.data)
		}
		if why != "" {
			s.check.found(p, -1, why, s.check.Action)
			kept = kept && s.check.Action != sandbox.GateWithhold
		}
	}
	return kept
}

func (s *schema) isFor(name string) bool {
	ok, err := path.Match(s.path, name)
	return s.of == sandbox.GateArtifact && err == nil && ok
}
