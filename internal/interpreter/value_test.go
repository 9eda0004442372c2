package interpreter_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/internal/interpreter"
	"pinfold/sandbox"
)

// lastValues are programs and the repr of their last expression's value.
var lastValues = []struct{ name, source, want string }{
	{"number", "42", "42"},
	{"name", "x = 1\nx", "1"},
	{"call", "def f():\n    return 3\n\nf()\n", "3"},
	{"comment behind", "x = 1\nx  # the end\n# end\n\n", "1"},
	{"semicolon", "x = 1; x + 1;", "2"},
	{"two in a line", "x = 1\nx = 2; x + 1", "3"},
	{"tuple", "1, 2", "(1, 2)"},
	{"list over lines", "[\n    1,\n    2,\n]\n", "[1, 2]"},
	{"brackets at the margin", "x = 1\n(\nx\n+\n1\n)\n", "2"},
	{"call over lines", "dict(\n  a=1,\n)\n", "{'a': 1}"},
	{"continued", "1 + \\\n2\n", "3"},
	{"continued negative", "x = 1 \\\n-2\n", ""},
	{"continued with carriage return", "x = 1 \\\r\n-2\r\n", ""},
	{"comment that ends like a continued line", "# \\\n7\n", "7"},
	{"string", "'a'\n", "'a'"},
	{"string after code", "x = 1\n'a'\n", "'a'"},
	{"f-string", "x = 1\nf'{x}'\n", "'1'"},
	{"bytes", "b'x'", "b'x'"},
	{"string over lines", "x = 1\n'''a\nb\n'''\n", `'a\nb\n'`},
	{"in a string", "x = '''\n5\n'''\n", ""},
	{"lambda", "(lambda: 5)()", "5"},
	{"conditional", "1 if True else 2", "1"},
	{"not", "not 0", "True"},
	{"walrus", "(x := 5)", "5"},
	{"names like keywords", "format = iffy = delta = 4\nformat + iffy + delta", "12"},
	{"another", "width = 3\nwidth", "3"},
	{"and another", "importance = classes = default = 3\nimportance", "3"},
	{"print_", "print_ = 2\nprint_", "2"},
	{"comprehension", "n = 2\n[n * i for i in range(3)]", "[0, 2, 4]"},
	{"future", "from __future__ import annotations\n5", "5"},
	{"latin-1", "# coding: latin-1\nx = '\xe9'\nascii(x)", `"'\\xe9'"`},
	{"byte order mark", "\ufeff6", "6"},
	{"byte order mark and code", "\ufeffx = 1\nx", "1"},
	{"form feed", "x = 1\n\fx\n", "1"},
	{"warning", "5 is 5", "True"},
	{"large", "x = [" + repeat("1, ", 100_000) + "]\nlen(x)", "100000"},
	{"None", "None", ""},
	{"falsehood", "0", "0"},
	{"assignment", "x = 5", ""},
	{"augmented", "x = 5\nx += 1", ""},
	{"annotated", "x: int = 5", ""},
	{"in an if", "if True:\n    5\n", ""},
	{"else", "if False:\n    pass\nelse:\n    5\n", ""},
	{"two in a line, the first with a semicolon in it", "';'; 4", "4"},
	{"match", "match = 4\nmatch", "4"},
	{"del", "x = 5\ndel x", ""},
	{"empty", "", ""},
	{"docstring", "'''doc'''\n", "'doc'"},
	{"exit before", "import sys\nsys.exit()\n5", ""},
	{"recursive", "x = []\nx.append(x)\nx", "[[...]]"},
}

func repeat(s string, n int) string {
	b := make([]byte, 0, n*len(s))
	for range n {
		b = append(b, s...)
	}
	return string(b)
}

// TestLastValues looks at what the harness writes for each program.
func TestLastValues(t *testing.T) {
	for _, python := range pythons(t) {
		for _, c := range lastValues {
			t.Run(filepath.Base(python)+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				dir, harness := t.TempDir(), install(t)
				write(t, filepath.Join(dir, "main.py"), c.source)
				if o := start(t, dir, "", python, harness, "main.py"); o.status != 0 || o.stdout != "" {
					t.Fatalf("%+v", o)
				}
				file, err := os.ReadFile(filepath.Join(filepath.Dir(harness), interpreter.ResultsFile))
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				var want []sandbox.Rich
				if c.want != "" {
					want = []sandbox.Rich{{"text/plain": c.want}}
				}
				got := interpreter.ReadResults(file)
				if diff := cmp.Diff(want, got.Values); diff != "" || len(got.Skipped) > 0 {
					t.Fatalf("-want +got:\n%s%+v", diff, got.Skipped)
				}
			})
		}
	}
}
