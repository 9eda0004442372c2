//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"testing"

	"pinfold/internal/image"
	"pinfold/internal/language"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// killedPrograms print a line and then an unfinished one, and never end. kept is what of
// it is there when their time is over: the table of docs/output.md.
var killedPrograms = map[string]struct{ code, kept string }{
	"python":     {"import sys\nprint('line')\nsys.stdout.write('part')\nwhile True: pass\n", "line\n"},
	"javascript": {"console.log('line'); process.stdout.write('part'); while (true) {}\n", "line\npart"},
	"typescript": {"console.log('line' as string); process.stdout.write('part'); while (true) {}\n", "line\npart"},
	"sh":         {"echo line; printf part; while :; do :; done\n", "line\npart"},
	"bash":       {"echo line; printf part; while :; do :; done\n", "line\npart"},
	"c":          {"#include <stdio.h>\nint main() { puts(\"line\"); printf(\"part\"); for (volatile int x = 0;;) x = 1; }\n", ""},
	"cpp":        {"#include <iostream>\nint main() { std::cout << \"line\\n\" << \"part\"; for (volatile int x = 0;;) x = 1; }\n", ""},
	"go":         {"package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfmt.Println(\"line\")\n\tfmt.Print(\"part\")\n\tfor {\n\t}\n}\n", "line\npart"},
	"rust":       {"fn main() { println!(\"line\"); print!(\"part\"); loop { std::thread::yield_now() } }\n", "line\n"},
	"java":       {"class Main { public static void main(String[] a) { System.out.println(\"line\"); System.out.print(\"part\"); while (true); } }\n", "line\npart"},
	"ruby":       {"puts 'line'; print 'part'; loop {}\n", "line\npart"},
	"php":        {"<?php echo \"line\\n\"; echo 'part'; while (true);\n", "line\npart"},
	"perl":       {"print \"line\\n\"; print 'part'; 1 while 1;\n", "line\npart"},
	"r":          {"cat('line\\n'); cat('part'); while (TRUE) {}\n", "line\npart"},
	"lua":        {"print('line'); io.write('part'); while true do end\n", "line\n"},
	"tcl":        {"puts line; puts -nonewline part; while 1 {}\n", "line\n"},
}

// TestOutputOfKilledPrograms asks every language of the table what is kept.
func TestOutputOfKilledPrograms(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	host, err := image.Host(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	lookup := func(names []string) (string, bool) { return host.Lookup(os.DirFS("/"), names) }
	slots := make(chan struct{}, 2)
	for _, l := range language.Table() {
		t.Run(l.Name, func(t *testing.T) {
			if missing := l.Missing(lookup); len(missing) > 0 {
				lacks(t, missing)
			}
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			c, ok := killedPrograms[l.Name]
			if !ok {
				t.Fatal("no program")
			}
			// CPU time: it has begun, however busy the machine is.
			request, err := json.Marshal(sandbox.Spec{Language: l.Name, Code: c.code, Limits: sandbox.Limits{CPUTimeMS: 2500, WallTimeMS: 60_000}})
			if err != nil {
				t.Fatal(err)
			}
			o := start(t, bin, string(request), "run", "--json", "--spec", "-")
			var r sandbox.Result
			if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
				t.Fatalf("no result: %v: %.500s %.500s", err, o.stdout, o.stderr)
			}
			if r.Cause.Kind != sandbox.CauseCPUTime || r.Cause.Phase == sandbox.PhaseCompile {
				t.Fatalf("%s by %+v\n%.500s", r.Status, r.Cause, r.Stderr)
			}
			if r.Stdout != c.kept {
				t.Errorf("%q is there, want %q", r.Stdout, c.kept)
			}
		})
	}
}
