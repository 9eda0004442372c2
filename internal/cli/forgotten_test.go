package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/engine/runs"
)

// TestForgottenFile: who forgot --file saw a long traceback and no word about it. The
// words are the program's: they name nothing that is not here, and pass nothing on.
func TestForgottenFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"sales.csv", "two words.csv", "data/x.csv", "-n", "a\x1b[2J", "open/y", "given.csv", "a:b"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	given := []runs.Input{{Path: "given.csv"}}
	for words, want := range map[string]string{
		"Traceback\n  File \"main.py\", line 1\nFileNotFoundError: [Errno 2] No such file or directory: 'sales.csv'\n": "--file sales.csv",
		"No such file or directory: 'two words.csv'": "--file 'two words.csv'",
		"No such file or directory: 'data/x.csv'":    "--file data/x.csv:data/x.csv",
		"No such file or directory: './sales.csv'":   "--file sales.csv",
		"No such file or directory: 'data'":          "--file data",
		"Error: ENOENT: no such file or directory, open 'sales.csv'\n    at Object.open (node:fs:1)\n  path: 'sales.csv'\n}\n\nNode.js v18": "--file sales.csv",
		"cat: sales.csv: No such file or directory":                                                "--file sales.csv",
		"sh: 1: cannot open sales.csv: No such file":                                               "--file sales.csv",
		"No such file or directory @ rb_sysopen - sales.csv (Errno::ENOENT)":                       "--file sales.csv",
		"panic: open sales.csv: no such file or directory":                                         "--file sales.csv",
		"java.io.FileNotFoundException: sales.csv (No such file or directory)":                     "--file sales.csv",
		"java.nio.file.NoSuchFileException: sales.csv":                                             "--file sales.csv",
		"couldn't open \"sales.csv\": no such file or directory":                                   "--file sales.csv",
		"awk: cannot open file `sales.csv' for reading: No such file or directory":                 "--file sales.csv",
		"No such file or directory: 'sales.csv'\nwhile reading\n" + strings.Repeat("x", lastWords): "", // too long ago
		"sales.csv has no rows":                                     "",
		"No such file or directory: 'nothing.csv'":                  "",
		"No such file or directory: 'given.csv'":                    "",
		"No such file or directory: '/etc/passwd'":                  "",
		"No such file or directory: '../sales.csv'":                 "",
		"No such file or directory: '-n'":                           "",
		"No such file or directory: 'a:b'":                          "",
		"No such file or directory: 'a\x1b[2J'":                     "",
		"No such file or directory: ''":                             "",
		"open: No such file or directory":                           "", // a directory of that name is not meant
		strings.Repeat("a ", mostNames) + "sales.csv: No such file": "",
	} {
		if got := forgotten(words, given); got != want {
			t.Errorf("%.90q: %q, want %q", words, got, want)
		}
	}
}
