package interpreter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/sandbox"
)

const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func TestReadResults(t *testing.T) {
	file := `{"text/plain": "42"}

{"text/plain": "<Figure>", "image/png": "` + onePixel + `", "image/svg+xml": "<?xml?><svg/>"}
{"application/vnd.pinfold.dataframe+json": { "data": [[12345678901234567890, 1e400, null]] }, "application/json": "just text"}
`
	got := ReadResults([]byte(file))
	want := Results{Values: []sandbox.Rich{
		{"text/plain": "42"},
		{"text/plain": "<Figure>", "image/png": onePixel, "image/svg+xml": "<?xml?><svg/>"},
		{sandbox.MediaFrame: json.RawMessage(`{"data":[[12345678901234567890,1e400,null]]}`), "application/json": "just text"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	// A client reads the same from a result's JSON.
	b, err := json.Marshal(got.Values)
	if err != nil {
		t.Fatal(err)
	}
	var again []sandbox.Rich
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Values, again); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
}

// What is wrong is left out, and said; what is right beside it stays.
func TestReadResultsRefuses(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for name, c := range map[string]struct{ line, reason string }{
		"no JSON":          {`nonsense`, "it is not a JSON object"},
		"no object":        {`["text/plain"]`, "it is not a JSON object"},
		"cut off":          {`{"text/plain": "a`, "it is not a JSON object"},
		"two objects":      {`{} {}`, "it is not a JSON object"},
		"a comma too many": {`{"text/plain": "a",}`, "it is not a JSON object"},
		"NaN":              {`{"application/json": NaN}`, "it is not a JSON object"},
		"not UTF-8":        {"{\"text/plain\": \"\xff\"}", "it is not UTF-8"},
		"deep":             {`{"application/json": ` + deep + `}`, "nested too deep"},
		"very deep":        {`{"application/json": ` + strings.Repeat("[", 1<<18), "nested too deep"},
		"a name twice":     {`{"text/plain": "a", "text/plain": "b"}`, "a name twice"},
		"twice inside":     {`{"application/json": [{"a": 1, "a": 2}]}`, "a name twice"},
		"long number":      {`{"application/json": 1` + strings.Repeat("0", 1000) + `}`, "a number that is too long"},
		"many forms":       {manyForms(), "too many forms"},
		"text is a number": {`{"text/plain": 1}`, "it is not a string"},
		"script":           {`{"text/javascript": "alert(1)"}`, "no such type"},
		"odd type":         {`{"application/vnd.x\u001b[31m+json": 1}`, "no such type"},
		"type with CR LF":  {"{\"application/vnd.a\\r\\nX: y+json\": 1}", "no such type"},
		"upper case":       {`{"TEXT/HTML": "x"}`, "no such type"},
		"unknown image":    {`{"image/bmp": "Qk0="}`, "no such type"},
		"no base64":        {`{"image/png": "%%%"}`, "it is not base64"},
		"base64 in lines":  {`{"image/png": "` + onePixel[:8] + `\n` + onePixel[8:] + `"}`, "it is not base64"},
		"no image":         {`{"image/png": "aGVsbG8="}`, "it is not an image of this type"},
		"another image":    {`{"image/jpeg": "` + onePixel + `"}`, "it is not an image of this type"},
		"empty image":      {`{"image/gif": ""}`, "it is not an image of this type"},
		"image of JSON":    {`{"image/png": {"a": 1}}`, "not"},
		"no picture":       {`{"image/svg+xml": "<html>"}`, "it is not an SVG picture"},
		"its own word":     {`{"skipped": "a figure is \u001b[2J too large"}`, `a figure is \x1b[2J too large`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ReadResults([]byte(c.line + "\n" + `{"text/plain": "good"}`))
			if diff := cmp.Diff([]sandbox.Rich{{"text/plain": "good"}}, got.Values); diff != "" {
				t.Fatalf("-want +got:\n%s", diff)
			}
			if len(got.Skipped) != 1 || !strings.Contains(got.Skipped[0].Reason, c.reason) || got.Skipped[0].Code == "" {
				t.Fatalf("skipped %+v; want %q", got.Skipped, c.reason)
			}
			if s := got.Skipped[0].Reason; sandbox.SafeText(s, maxReason) != s {
				t.Fatalf("%q is not safe to print", s)
			}
		})
	}
}

func manyForms() string {
	forms := make([]string, 100)
	for i := range forms {
		forms[i] = fmt.Sprintf(`"application/vnd.a%d+json": 1`, i)
	}
	return "{" + strings.Join(forms, ",") + "}"
}

// One bad form of a value does not take the others with it.
func TestGoodFormsStay(t *testing.T) {
	got := ReadResults([]byte(`{"text/plain": "good", "image/png": "no", "text/html": "<b>"}`))
	if diff := cmp.Diff([]sandbox.Rich{{"text/plain": "good", "text/html": "<b>"}}, got.Values); diff != "" || len(got.Skipped) != 1 {
		t.Fatalf("-want +got:\n%s %+v", diff, got.Skipped)
	}
}

func TestResultsAreBounded(t *testing.T) {
	many := ReadResults(bytes.Repeat([]byte("{\"text/plain\": \"x\"}\n"), 10_000))
	if len(many.Values) != maxResults || len(many.Skipped) != 1 {
		t.Errorf("%d values, skipped %+v", len(many.Values), many.Skipped)
	}
	bad := ReadResults(bytes.Repeat([]byte("no\n"), 100_000))
	if len(bad.Values) != 0 || len(bad.Skipped) != maxSkipped {
		t.Errorf("%d values, %d skipped", len(bad.Values), len(bad.Skipped))
	}
	empty := ReadResults(bytes.Repeat([]byte("\n"), MaxResultsBytes))
	if len(empty.Values) != 0 || len(empty.Skipped) != 0 {
		t.Errorf("%d values, %d skipped", len(empty.Values), len(empty.Skipped))
	}
	large := ReadResults(make([]byte, MaxResultsBytes+1))
	if len(large.Values) != 0 || len(large.Skipped) != 1 || large.Skipped[0].Code != sandbox.CodeTooLarge {
		t.Errorf("%+v", large)
	}
	var b Buffer
	if _, err := b.Write(make([]byte, MaxResultsBytes)); err != nil {
		t.Error(err)
	}
	if _, err := b.Write([]byte{1}); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("one byte more: %v", err)
	}
}

// Looking at results costs the host more than writing them costs the program, so
// their values are counted before. Data frames of the largest kind are far below.
func TestResultsOfManyValuesAreRefused(t *testing.T) {
	frame := `{"application/json": [` + strings.Repeat("["+strings.Repeat("1,", 99)+"1],", 999) + "[1]]}\n"
	if got := ReadResults([]byte(strings.Repeat(frame, 4))); len(got.Values) != 4 || len(got.Skipped) > 0 {
		t.Errorf("%d frames, skipped %+v", len(got.Values), got.Skipped)
	}
	quoted := `{"text/plain": "\"` + strings.Repeat(",[{", 1<<20) + `"}` + "\n"
	if got := ReadResults([]byte(quoted)); len(got.Values) != 1 {
		t.Errorf("text counts as values: %+v", got.Skipped)
	}
	for name, unit := range map[string]string{"numbers": "1,", "lists": "[],", "objects": `{"":1},`} {
		const head, tail = `{"application/json": [`, "1]}\n"
		line := head + strings.Repeat(unit, (MaxResultsBytes-100)/len(unit)) + tail
		var got Results
		allocs := testing.AllocsPerRun(1, func() { got = ReadResults([]byte(line + `{"text/plain": "good"}`)) })
		if len(got.Values) != 1 || len(got.Skipped) != 1 || got.Skipped[0].Code != sandbox.CodeTooLarge || allocs > 1000 {
			t.Errorf("%s: %d values, skipped %+v, %.0f allocations", name, len(got.Values), got.Skipped, allocs)
		}
	}
	half := `{"application/json": [` + strings.Repeat("1,", maxValues/2) + "1]}\n" // each is allowed, not both
	if got := ReadResults([]byte(half + half + `{"text/plain": "good"}`)); len(got.Values) != 2 || len(got.Skipped) != 1 {
		t.Errorf("%d values, skipped %+v", len(got.Values), got.Skipped)
	}
}

// FuzzReadResults looks for results that a client could not read again.
func FuzzReadResults(f *testing.F) {
	f.Add([]byte(`{"text/plain": "42", "application/json": {"a": [1, null, "x"]}}`))
	f.Add([]byte(`{"image/png": "` + onePixel + `"}` + "\n" + `{"skipped": "x"}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		got := ReadResults(file)
		if len(got.Values) > maxResults || len(got.Skipped) > maxSkipped {
			t.Fatalf("%d values, %d skipped", len(got.Values), len(got.Skipped))
		}
		b, err := json.Marshal(got.Values)
		if err != nil {
			t.Fatal(err)
		}
		var again []sandbox.Rich
		if err := json.Unmarshal(b, &again); err != nil || len(again) != len(got.Values) {
			t.Fatalf("%v: %s", err, b)
		}
	})
}
