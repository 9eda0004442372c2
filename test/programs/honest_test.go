//go:build linux

package programs

import (
	"path/filepath"
	"testing"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// honest are the programs of testdata/honest. Each prints what does not depend
// on the machine, so the same text and the same exit status must come out.
var honest = []struct {
	name, language, main string
	outside              string // the command line without Pinfold
	needs, pkg           string // a file that must exist, and the package that brings it
}{
	{"asan", "bash", "main.sh", "bash main.sh", "/usr/bin/gcc", "build-essential"},
	{"curl", "bash", "main.sh", "bash main.sh", "/usr/bin/curl", "curl"},
	{"git", "bash", "main.sh", "bash main.sh", "/usr/bin/git", "git"},
	{"java", "java", "Main.java", "javac Main.java && java Main", "/usr/bin/javac", "openjdk-17-jdk-headless"},
	{"lua", "lua", "main.lua", "lua5.4 main.lua", "/usr/bin/lua5.4", "lua5.4"},
	{"node-cluster", "javascript", "main.js", "node main.js", "/usr/bin/node", "nodejs"},
	{"node-workers", "javascript", "main.js", "node main.js", "/usr/bin/node", "nodejs"},
	{"openssl", "bash", "main.sh", "bash main.sh", "/usr/bin/openssl", "openssl"},
	{"perl", "perl", "main.pl", "perl main.pl", "/usr/bin/perl", "perl"},
	{"php", "php", "main.php", "php main.php", "/usr/bin/php", "php-cli"},
	{"postgres", "bash", "main.sh", "bash main.sh", "/usr/lib/postgresql/*/bin/initdb", "postgresql"},
	{"python-copes", "python", "main.py", "/usr/bin/python3 main.py", "/usr/bin/python3", "python3"},
	{"python-pools", "python", "main.py", "/usr/bin/python3 main.py", "/usr/bin/python3", "python3"},
	{"python-sqlite", "python", "main.py", "/usr/bin/python3 main.py", "/usr/bin/python3", "python3"},
	{"python-tls", "python", "main.py", "/usr/bin/python3 main.py", "/usr/bin/openssl", "openssl"},
	{"r", "r", "main.R", "Rscript main.R", "/usr/bin/Rscript", "r-base-core"},
	{"ruby", "ruby", "main.rb", "ruby main.rb", "/usr/bin/ruby", "ruby"},
	{"rust", "rust", "main.rs", "rustc -O -o main main.rs && ./main", "/usr/bin/rustc", "rustc"},
	{"shell", "bash", "main.sh", "bash main.sh", "/usr/bin/bc", "bc"},
	{"sqlite", "bash", "main.sh", "bash main.sh", "/usr/bin/sqlite3", "sqlite3"},
	{"tcl", "tcl", "main.tcl", "tclsh main.tcl", "/usr/bin/tclsh", "tcl"},
}

// Honest programs in many languages do inside what they do outside.
func TestHonestPrograms(t *testing.T) {
	ledger.Check(t)
	pinfold := build(t)
	for _, program := range honest {
		t.Run(program.name, func(t *testing.T) {
			need(t, program.needs, program.pkg)
			from := filepath.Join("testdata/honest", program.name)
			stdout, stderr, code := outside(t, copyTree(t, from), program.outside)
			if stdout == "" {
				t.Fatalf("outside it prints nothing: exit status %d\n%s", code, firstLines(stderr))
			}
			r := inside(t, pinfold, copyTree(t, from), program.main, program.language)
			if r.Stdout != stdout || r.ExitCode == nil || *r.ExitCode != code || r.Cause.Kind != sandbox.CauseExited {
				t.Errorf("inside:  %s, %+v\n%s\nstderr: %s\noutside: exit status %d\n%s\nstderr: %s",
					r.Status, r.Cause, firstLines(r.Stdout), firstLines(r.Stderr), code, firstLines(stdout), firstLines(stderr))
			}
		})
	}
}
