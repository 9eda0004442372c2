package warm

import "testing"

// What interpreters really print when a module is not there or throws.
func TestErrorLine(t *testing.T) {
	node := "node:internal/modules/cjs/loader:1210\n  throw err;\n  ^\n\n"
	for said, want := range map[string]string{
		"Traceback (most recent call last):\n  File \"x\", line 1\nModuleNotFoundError: No module named 'pandsa'\n":                                                  "ModuleNotFoundError: No module named 'pandsa'",
		node + "Error: Cannot find module 'lodash'\nRequire stack:\n- /x\n    at Module._load (node:internal)\n  code: 'MODULE_NOT_FOUND',\n}\n\nNode.js v20.20.2\n": "Error: Cannot find module 'lodash'",
		node + "TypeError [ERR_INVALID]: bad: worse\n    at x\n\nNode.js v20.20.2":                                                                                   "TypeError [ERR_INVALID]: bad: worse",
		"first.KeyError: 1\n\nDuring handling another came:\n\nValueError: 2":                                                                                        "ValueError: 2",
		"Fatal Python error: out of memory\nlast words\n":                                                                                                            "last words",
		"": "",
	} {
		if got := ErrorLine(said); got != want {
			t.Errorf("%q: got %q, want %q", said, got, want)
		}
	}
}
