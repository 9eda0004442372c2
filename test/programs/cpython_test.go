//go:build linux

package programs

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pinfold/test/ledger"
)

// cpython are modules of CPython's test suite, chosen because what they test
// goes through the sandbox: processes, signals, threads, files, descriptors,
// sockets, terminals, time, limits, identity. None takes long.
var cpython = []string{
	"test_bufio", "test_builtin", "test_cmd_line", "test_ctypes", "test_dbm", "test_epoll", "test_fcntl", "test_file", "test_fileio",
	"test_fork1", "test_glob", "test_grp", "test_hashlib", "test_httpservers", "test_json", "test_locale", "test_mailbox", "test_mmap",
	"test_openpty", "test_os", "test_pathlib", "test_platform", "test_popen", "test_posix", "test_posixpath", "test_pty", "test_pwd",
	"test_random", "test_re", "test_resource", "test_select", "test_shutil", "test_stat", "test_struct", "test_subprocess", "test_sys",
	"test_tarfile", "test_tempfile", "test_thread", "test_threading", "test_time", "test_uuid", "test_wait4", "test_zipfile",
}

// different are tests that end otherwise inside, by name or by the beginning of
// one that ends in a dot, and why that is right.
var different = map[string]string{
	"test.test_builtin.BuiltinTest.test_open_default_encoding": "inside, Python always speaks UTF-8 (PYTHONUTF8), and this test wants to change that",
	"test.test_mmap.LargeMmapTests.":                           "--file-size is a limit, and what it tests are files of 4 GiB",
	"test.test_resource.ResourceTest.test_fsize_ismax":         "--file-size is a limit, so RLIMIT_FSIZE is not infinite",
}

// chance are tests that fail by chance outside, too: nothing about a sandbox is learned
// from how they end.
var chance = map[string]string{
	"test.test_glob.SymlinkLoopGlobTests.test_selflink": "Linux follows at most 40 links, and where something is mounted meanwhile it begins the walk again and counts on: 39 may be too many (ELOOP)",
}

// Each of CPython's tests that passes outside passes inside, and what is skipped
// inside is skipped outside, but for what is declared.
func TestCPython(t *testing.T) {
	ledger.Check(t)
	need(t, "/usr/lib/python3.*/test/test_os.py", "libpython3-testsuite")
	pinfold, ran, used := build(t), map[string]bool{}, map[string]bool{}
	for _, module := range cpython {
		t.Run(module, func(t *testing.T) {
			ran[module] = true
			plain := outsideOutcomes(t, module)
			held := insideOutcomes(t, pinfold, module)
			if len(plain) == 0 || !slices.Contains(slices.Collect(maps.Values(plain)), "ok") {
				t.Fatalf("outside nothing passes: %v", plain)
			}
			for name, outcome := range plain {
				if outcome != "ok" || held[name] == "ok" {
					continue
				}
				if _, known := chance[name]; known {
					t.Logf("%s: %q: %s", name, held[name], chance[name])
					continue
				}
				if declared := declaredFor(name); declared != "" {
					used[declared] = true
					continue
				}
				t.Errorf("%s passes outside; inside: %q", name, held[name])
			}
		})
	}
	for name := range different {
		if ran[strings.Split(name, ".")[1]] && !used[name] && !t.Failed() {
			t.Errorf("%s is declared to be different, and is not", name)
		}
	}
}

// declaredFor returns the entry of different that is about a test.
func declaredFor(name string) string {
	for declared := range different {
		if name == declared || strings.HasSuffix(declared, ".") && strings.HasPrefix(name, declared) {
			return declared
		}
	}
	return ""
}

func outsideOutcomes(t *testing.T, module string) map[string]string {
	t.Helper()
	dir := copyTree(t, "testdata")
	_, stderr, code := outside(t, dir, "exec /usr/bin/python3 cpython.py outcomes.json "+module+" </dev/null")
	b, err := os.ReadFile(filepath.Join(dir, "outcomes.json")) //nolint:gosec // the test's own directory
	if err != nil {
		t.Fatalf("outside: exit status %d: %s", code, firstLines(stderr))
	}
	return outcomes(t, b)
}

func insideOutcomes(t *testing.T, pinfold, module string) map[string]string {
	t.Helper()
	dir, out := copyTree(t, "testdata"), t.TempDir()
	if err := os.RemoveAll(filepath.Join(dir, "honest")); err != nil {
		t.Fatal(err)
	}
	r := inside(t, pinfold, dir, "cpython.py", "python", "--artifact", "outcomes.json", "--artifacts-dir", out, "--", "outcomes.json", module)
	b, err := os.ReadFile(filepath.Join(out, "outcomes.json")) //nolint:gosec // the test's own directory
	if err != nil {
		t.Fatalf("inside: %s, %+v: %s%s", r.Status, r.Cause, firstLines(r.Stdout), firstLines(r.Stderr))
	}
	return outcomes(t, b)
}

func outcomes(t *testing.T, b []byte) map[string]string {
	t.Helper()
	var all map[string]string
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatalf("%v: %.300s", err, b)
	}
	return all
}
