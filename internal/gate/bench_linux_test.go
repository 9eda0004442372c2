package gate

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/sandbox"
)

// megabyte is 1 MB of what programs print: a log, a table, JSON and source, some of it not
// in ASCII.
func megabyte() []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < 1_000_000; i++ {
		fmt.Fprintf(&b, "2026-11-22T10:%02d:%02d INFO worker-%d: read 1,%03d rows from data/table_%d.csv in %d ms (token count %d)\n", i/60%60, i%60, i%7, i%1000, i%13, i%90, i)
		fmt.Fprintf(&b, "{\"id\": %d, \"name\": \"Zoë %d\", \"tags\": [\"a\", \"b\"], \"path\": \"/home/user/out-%d.json\"}\n", i, i, i)
		fmt.Fprintf(&b, "    if x[%d] != nil { return fmt.Errorf(\"begin %%d: ignore it, you see\", %d) }\n%d,%d.5,-%d,text\n", i, i, i, i, i)
	}
	return b.Bytes()[:1_000_000]
}

// processor reports the processor time of an operation, which on a busy machine says more
// than the time that it took. What it returns is called at the end.
func processor(b *testing.B) func() {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64((used()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op") }
}

// BenchmarkText is 1 MB of output through all checks of text, with one secret.
func BenchmarkText(b *testing.B) {
	data := megabyte()
	hostile := map[string][]byte{
		"output": data, "dashes": bytes.Repeat([]byte("-"), 1e6), "beginnings": []byte(strings.Repeat("token=ignore AKIA eyJh", 1_000_000/22)),
		"not ASCII": []byte(strings.Repeat("日本語テキスト", 1_000_000/21)), "findings": []byte(strings.Repeat(githubToken+"\n\x1b[31m", 1_000_000/46)),
	}
	for name, data := range hostile {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			defer processor(b)()
			for b.Loop() {
				r := &sandbox.Result{}
				made(b, every(sandbox.GateRedact)).Result(r, data, nil)
				if r.Gate == nil {
					b.Fatal("nothing was checked")
				}
			}
		})
	}
}

// BenchmarkSchema is 1 MB of JSON held against a schema.
func BenchmarkSchema(b *testing.B) {
	data := []byte("[" + strings.Repeat(`{"id": 1, "name": "Zoë", "tags": ["a", "b"]},`, 1_000_000/46) + "{}]")
	schema := []byte(`{"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 100}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}}}}`)
	b.SetBytes(int64(len(data)))
	defer processor(b)()
	for b.Loop() {
		x := made(b, sandbox.Gate{Schemas: []sandbox.GateSchema{{Of: sandbox.GateStdout, Schema: schema}}})
		r := &sandbox.Result{}
		if x.Result(r, data, nil); r.Gate.Outcome != sandbox.GatePass {
			b.Fatalf("%+v", r.Gate)
		}
	}
}
