package runs

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// What a request may cost before it is admitted is in proportion to its size, also
// where its paths have millions of directories.
func TestManyDirectoriesCostLittle(t *testing.T) {
	rn, _ := newRunner(t, hostFiles(), nil, nil)
	req := Request{Spec: sandbox.Spec{Language: "sh", Code: "scripted"}}
	for i := range sandbox.MaxFiles {
		req.Spec.Files = append(req.Spec.Files, sandbox.File{Path: fmt.Sprintf("%05d", i) + strings.Repeat("/a", (sandbox.MaxPathBytes-5)/2)})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := rn.prepare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took, text := after.TotalAlloc-before.TotalAlloc, uint64(sandbox.MaxFiles*sandbox.MaxPathBytes); took > 5*text {
		t.Errorf("%d bytes of paths took %d bytes of memory", text, took)
	}
}
