package sandbox_test

import (
	"fmt"

	"pinfold/sandbox"
)

// A hint is a text for those who write JSON, data for programs, and prints as Go.
func ExampleAdvice() {
	cause := sandbox.Cause{Kind: sandbox.CauseMemory}.
		WithAdvice(sandbox.Advise("raise it: %s", sandbox.Set("limits.memory_bytes", 512<<20)))
	fmt.Println(cause.Hint)
	fmt.Println(cause.Advice)
	fix, _ := cause.Advice.Find(sandbox.FixSet)
	fmt.Println(fix.Name, string(fix.Value))
	// Output:
	// raise it: "limits": {"memory_bytes": 536870912}
	// raise it: Limits.MemoryBytes = 536870912
	// limits.memory_bytes 536870912
}
