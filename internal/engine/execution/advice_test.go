package execution

import (
	"reflect"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// A program that lacked a module earns a hint by its last words, and nothing else.
func TestMissingModules(t *testing.T) {
	for name, c := range map[string]struct {
		language, stderr string
		code             int
		hint             string // what it says; "": there is none
	}{
		"python":               {"python", "Traceback (most recent call last):\nModuleNotFoundError: No module named 'numpy.random'\n", 1, "numpy is not where this program ran"},
		"a standard module":    {"python", "ModuleNotFoundError: No module named 'tkinter'\n", 1, "tkinter is of Python's standard library"},
		"one that was removed": {"python", "ModuleNotFoundError: No module named 'distutils.core'\n", 1, "distutils is of Python's standard library"},
		"javascript":           {"javascript", "node:internal\n  throw err;\n\nError: Cannot find module '@scope/left-pad'\nRequire stack:\n- /home/user/main.js\n\nNode.js v20.1.0\n", 1, "npm install PACKAGE"},
		"an ES module":         {"typescript", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'lodash' imported from /home/user/main.mjs\n", 1, "lodash is not"},
		"its own file":         {"javascript", "Error: Cannot find module './other'\n", 1, ""},
		"another language":     {"sh", "ModuleNotFoundError: No module named 'numpy'\n", 1, ""},
		"that it survived":     {"python", "ModuleNotFoundError: No module named 'numpy'\n", 0, ""},
		"another error":        {"python", "ModuleNotFoundError: No module named 'numpy'\nValueError: 2\n", 1, ""},
		"a name":               {"python", "Traceback (most recent call last):\nurllib.error.URLError: <urlopen error [Errno -2] Name or service not known>\n", 1, "there is no network inside"},
		"a name in Node":       {"javascript", "Error: getaddrinfo ENOTFOUND example.com\n    at x\n  errno: -3007\n}\n\nNode.js v18\n", 1, "there is no network inside"},
		"a name in curl":       {"sh", "curl: (6) Could not resolve host: example.com\n", 6, "there is no network inside"},
		"an address":           {"python", "OSError: [Errno 101] Network is unreachable\n", 1, "there is no network inside"},
		"said long before":     {"sh", "curl: (6) Could not resolve host: example.com\n" + strings.Repeat("something else\n", 500), 1, ""},
		"and it survived":      {"sh", "curl: (6) Could not resolve host: example.com\n", 0, ""},
		"no name":              {"python", "ModuleNotFoundError: No module named '\x1b[2J'\n", 1, ""},
	} {
		cause := sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status"}
		status := sandbox.StatusSucceeded
		if c.code != 0 {
			status = sandbox.StatusFailed
		}
		got := Advise(status, cause, c.language, nil, []byte(c.stderr)[max(0, len(c.stderr)-LastWords):])
		if got.Kind != cause.Kind || got.Evidence != cause.Evidence || c.hint == "" && got.Hint != "" || !strings.Contains(got.Hint, c.hint) {
			t.Errorf("%s: %+v", name, got)
		}
		if standard := strings.Contains(c.hint, "standard library"); standard && strings.Contains(got.Hint, "pip") {
			t.Errorf("%s: what no index has is to be fetched: %s", name, got.Hint)
		}
	}
	if !isStandard("os") || !isStandard("asyncore") || isStandard("numpy") || isStandard("") {
		t.Error("the list of Python's own modules is another one")
	}
}

// A process of a living sandbox earns the same hints, and no other end.
func TestProcessesAreAdvised(t *testing.T) {
	for said, want := range map[string]string{
		"ModuleNotFoundError: No module named 'numpy'\n":  `--target site PACKAGE, then site in "files" and "env": {"PYTHONPATH": "site"}`,
		"Error: Cannot find module 'lodash'\n":            "npm install PACKAGE",
		"curl: (6) Could not resolve host: example.com\n": "there is no network inside",
		"something else\n": "",
	} {
		failed := sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 1"}
		got := Advise(sandbox.StatusFailed, failed, "", nil, []byte(said))
		if got.Kind != failed.Kind || got.Evidence != failed.Evidence || !strings.Contains(got.Hint, want) || (want == "") != (got.Hint == "") {
			t.Errorf("%q: %+v", said, got)
		}
		if got := Advise(sandbox.StatusSucceeded, failed, "", nil, []byte(said)); !reflect.DeepEqual(got, failed) {
			t.Errorf("%q of one that succeeded: %+v", said, got)
		}
	}
}

// hint is what a program of a language that said something last is told.
type hint struct{ language, said, hint string }

func hinted(t *testing.T, network *sandbox.NetworkUse, all []hint) {
	t.Helper()
	failed := sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 1"}
	for _, c := range all {
		if got := Advise(sandbox.StatusFailed, failed, c.language, network, []byte(c.said)); got.Hint != c.hint {
			t.Errorf("%q: %q", c.said, got.Hint)
		}
	}
}

func TestDenialsAreNamed(t *testing.T) {
	failed := sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 1"}
	network := &sandbox.NetworkUse{Denied: []sandbox.Denial{
		{Host: "a.test", Port: 443, Reason: sandbox.DeniedSNI, Evidence: "TLS asked for b.test", Hint: "declare it"},
		{Host: "c.test", Reason: sandbox.DeniedUndeclared, Hint: "declare that"},
	}}
	hinted(t, network, []hint{
		{"python", "something\n", "a.test:443 was denied (sni_mismatch: TLS asked for b.test); declare it"},
		{"python", "cannot reach c.test\n", "c.test was denied (not_declared); declare that"},
		{"", "cannot reach c.test\n", "c.test was denied (not_declared); declare that"},
		{"", "something\n", ""}, // an earlier process may have tried it
	})
	if got := Advise(sandbox.StatusFailed, failed, "sh", &sandbox.NetworkUse{}, []byte("connect: Network is unreachable\n")); got.Hint != "only declared names can be reached, and no addresses (docs/network.md)" {
		t.Error(got.Hint)
	}
}

// At a port that is not declared nobody answers, and no host hears of it: that a program was
// refused is all there is to go by.
func TestPortsThatAreNotDeclaredAreNamed(t *testing.T) {
	network := &sandbox.NetworkUse{Endpoints: []sandbox.EndpointUse{{Host: "used.test", Connections: 2}, {Host: "unused.test"}}}
	const answers = " answers at the ports that are declared for it only (443 where none is): declare the one that the program wants"
	hinted(t, network, []hint{
		{"python", "ConnectionRefusedError: [Errno 111] Connection refused\n", "unused.test" + answers},
		{"javascript", "Error: connect ECONNREFUSED 127.0.0.2:443\n", "unused.test" + answers},
		{"sh", "curl: (7) Failed to connect to used.test port 8443 after 0 ms: Couldn't connect to server\n", "used.test" + answers},
		{"python", "ValueError: no\n", ""},
		{"", "Connection refused\n", ""}, // by what an earlier process started
	})
	hinted(t, &sandbox.NetworkUse{Endpoints: network.Endpoints[:1]}, []hint{{"python", "Connection refused\n", ""}})
}

// A name that is declared and does not answer looks like a network that is broken: what the host
// saw is said.
func TestEndpointsThatWereNotReachedAreNamed(t *testing.T) {
	network := &sandbox.NetworkUse{Endpoints: []sandbox.EndpointUse{
		{Host: "well.test", Connections: 2},
		{Host: "typo.test", Connections: 1, Errors: 1, LastError: "the name was not found"},
		{Host: "shut.test", Connections: 3, Errors: 1, LastError: "the server refused the connection"},
	}}
	hinted(t, network, []hint{
		{"python", "tlsv1 alert internal error\n", "typo.test is declared and was not reached (1 of 1 times): the name was not found"},
		{"python", "cannot reach shut.test\n", "shut.test is declared and was not reached (1 of 3 times): the server refused the connection"},
		{"", "cannot reach shut.test\n", "shut.test is declared and was not reached (1 of 3 times): the server refused the connection"},
		{"", "cannot reach well.test\n", ""},
		{"", "something\n", ""}, // an earlier process may have tried it
	})
}
