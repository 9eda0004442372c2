package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	const events = `{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    x_test.go:3: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestLater","Output":"=== RUN   TestLater\n"}
{"Action":"output","Package":"p","Test":"TestLater","Output":"    x_test.go:9: needs a moon\n"}
{"Action":"output","Package":"p","Test":"TestLater","Output":"--- SKIP: TestLater (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestLater","Elapsed":0}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p","Elapsed":1.25}
{"ImportPath":"q","Action":"build-output","Output":"q.go:1: broken\n"}
not an event
{"Action":"skip","Package":"r","Elapsed":0}
{"Action":"pass","Package":"s","Elapsed":0.5}
`
	const want = `    x_test.go:3: wrong
FAIL
   FAIL     1.2 s  p
q.go:1: broken
not an event
   ok       0.5 s  s
   skipped: p TestLater: x_test.go:9: needs a moon
   took     0.0 s  p.TestGood
   1 passed, 1 skipped, 2 failed
`
	var out bytes.Buffer
	r := &report{out: &out, said: make(map[string]*strings.Builder)}
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.summary()
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Fatalf("report (-want +got):\n%s", diff)
	}
}
