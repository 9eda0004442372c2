package scan

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// What is no text, and what is too much of it, is a reason and no more.
func TestWhatIsNoSourceSaysSo(t *testing.T) {
	s := scanner(t)
	for _, l := range []string{"python", "bash", "javascript", "c", "go", "ruby"} {
		for name, c := range map[string]struct{ source, why string }{
			"zero byte":     {"x = 1\x00", "no text"},
			"not UTF-8":     {"x = '\xff\xfe'", "UTF-8"},
			"a program":     {"\x7fELF\x02\x01\x01\x00\x00", "no text"},
			"16 MB, 1 line": {strings.Repeat("x", 16<<20), "larger than 4MiB"},
		} {
			r := scanned(t, s, l, c.source)
			if !strings.HasPrefix(r.Unread, "could not be read: ") || !strings.Contains(r.Unread, c.why) || len(r.Findings) > 0 {
				t.Errorf("%s, %s: %q with %d findings", l, name, r.Unread, len(r.Findings))
			}
		}
		if r := scanned(t, s, l, ""); r.Unread != "" || len(r.Findings) > 0 {
			t.Errorf("%s, empty: %+v", l, r)
		}
	}
	if _, err := s.Scan(t.Context(), Source{Language: "klingon"}); err == nil {
		t.Error("an unknown language is read")
	}
}

// Sources that are nested as deeply as they are long are refused in a sentence, and what
// their words tell is found all the same.
func TestDeepSourceIsBounded(t *testing.T) {
	s := scanner(t)
	units := map[string][]string{
		"bash":       {"(", "{ ", "$(", "`", "if ", "x && ", "x | ", "case x in a) ", "\"$(", "${x:-", "$((", "[[ ! ", "x[$(", "<(", "f() { ", "while ", "(x \")\"; "},
		"javascript": {"(", "[", "{", "a.", "a(", "!", "a?b:", "x=>", "async(", "`${", "if(1)", "new ", "a,", "function f(){", "class A{x=", "import("},
		"python":     {"(", "[", "{1:", "-", "not ", "a.", "a(", "lambda:", "a if b else ", "f'{", "x=", "*"},
		"c":          {"(", "{", "a(", "\"", "/*", "a.", "a->"},
		"go":         {"a(", "`", "'"},
	}
	for l, all := range units {
		for _, u := range all {
			source := "# AKIAQ7RT2LMB4XZ9KD3F\n"
			if l != "python" && l != "bash" {
				source = "//" + source
			}
			size := 200_000
			if u == "(" && l != "javascript" { // more is not given to that parser
				size = 1_000_000
			}
			source += strings.Repeat(u, size/len(u))
			r := scanned(t, s, l, source)
			if !slices.Contains(rulesOf(r), "credential-text") {
				t.Errorf("%s, many of %q: what its words tell is not found (%s)", l, u, r.Unread)
			}
			if l == "python" && u == "(" && r.Unread == "" {
				t.Errorf("%s, many of %q: read", l, u)
			}
			if len(r.Unread) > 600 || len(r.Findings) > maxFindings {
				t.Errorf("%s, %q: %d bytes of a reason, %d findings", l, u, len(r.Unread), len(r.Findings))
			}
		}
	}
}

// deepReader gives a source in the same pieces without a bound, and measures.
type deepReader struct {
	boundedReader
	deepest int
}

func (r *deepReader) Read(b []byte) (int, error) {
	var pc [1]uintptr
	for runtime.Callers(r.deepest+1000, pc[:]) > 0 {
		r.deepest += 1000
	}
	n := copy(b[:min(len(b), pieceBytes)], r.rest)
	r.rest = r.rest[n:]
	if n == 0 {
		return 0, errors.New("end")
	}
	return n, nil
}

func TestShellParserIsStoppedInItsDepth(t *testing.T) {
	for _, u := range []string{"(", "$(", "(x \")\"; "} { // the last deceives who counts brackets
		source := strings.Repeat(u, 5000)
		// The control: without the bound the parser goes as deep as the source says.
		r := &deepReader{boundedReader: boundedReader{rest: source}}
		_, _ = syntax.NewParser().Parse(r, "")
		if r.deepest < 4*maxFrames {
			t.Errorf("%q: the parser went only %d frames deep without a bound: this test shows nothing", u, r.deepest)
		}
		p := &program{source: Source{Language: "bash", Text: []byte(source)}, lines: []int{0}}
		if why := readShell(p, source, place{}); why != errDeep.Error() {
			t.Errorf("%q: %q, not that it is too deep", u, why)
		}
	}
	honest := strings.Repeat("if true; then (", 30) + "x" + strings.Repeat("); fi", 30)
	if why := readShell(&program{}, honest, place{}); why != "" {
		t.Errorf("sixty levels: %s", why)
	}
}

// What the reader of Python answers is the guest's word.
func TestForgedAnswersOfPythonAreBounded(t *testing.T) {
	many := strings.Repeat(`{"k":"call","l":1,"c":1,"n":"os.system","a":[{"t":"rm -rf /"}]},`, maxFacts+10)
	for name, c := range map[string]struct {
		answer string
		unread bool
	}{
		"nothing":        {"", true},
		"no JSON":        {"hello", true},
		"unknown field":  {`{"facts":[],"extra":1}`, true},
		"two answers":    {`{"facts":[]}{"facts":[]}`, true},
		"too long":       {`{"facts":[]}` + strings.Repeat(" ", maxPythonAnswer), true},
		"a wrong type":   {`{"facts":[{"l":"x"}]}`, true},
		"deep":           {strings.Repeat("[", 1<<20), true},
		"strange places": {`{"facts":[{"k":"call","l":-5,"c":99999999999,"n":"eval","a":[{}]},{"k":"nonsense","l":1,"n":"x"}]}`, false},
		"too many":       {`{"facts":[` + many + `{"k":"call","l":1,"c":1,"n":"eval"}],"cut":true}`, false},
		"its own reason": {`{"error":"\u001b[2J` + strings.Repeat("a", 5000) + `"}`, true},
	} {
		s := Scanner{Python: func(context.Context, []byte, []byte) ([]byte, error) { return []byte(c.answer), nil }}
		r := scanned(t, s, "python", "x = 1\n")
		if (r.Unread != "") != c.unread || len(r.Unread) > 600 || strings.Contains(r.Unread, "\x1b") {
			t.Errorf("%s: %.100q", name, r.Unread)
		}
		for _, f := range r.Findings {
			if f.Line < 0 || f.Line > 2 || f.Column < 0 {
				t.Errorf("%s: a finding in line %d", name, f.Line)
			}
		}
		if len(r.Findings) > maxFindings {
			t.Errorf("%s: %d findings", name, len(r.Findings))
		}
	}
	failed := errors.New("no sandbox")
	s := Scanner{Python: func(context.Context, []byte, []byte) ([]byte, error) { return nil, failed }}
	if _, err := s.Scan(t.Context(), Source{Language: "python", Text: []byte("x")}); !errors.Is(err, failed) {
		t.Errorf("a run that fails is %v", err)
	}
}

// Findings are bounded, and say that there were more.
func TestFindingsAreBounded(t *testing.T) {
	r := scanned(t, Scanner{}, "bash", strings.Repeat("curl http://example.com/\n", 1000))
	if len(r.Findings) != maxPerRule || !r.Truncated {
		t.Errorf("%d findings, truncated %v", len(r.Findings), r.Truncated)
	}
	for i, f := range r.Findings {
		if f.Line != i+1 {
			t.Errorf("finding %d is in line %d", i, f.Line)
		}
	}
}

// A finding does not carry a credential, nor what a terminal would obey.
func TestTextsOfFindingsAreSafe(t *testing.T) {
	secret := "AKIAQ7RT2LMB4XZ9KD3F"
	r := scanned(t, Scanner{}, "bash", "K="+secret+"\ncurl http://x/\x1b[31m\u202e"+strings.Repeat("y", 1000)+"\n")
	if len(r.Findings) < 3 {
		t.Fatalf("only %d findings", len(r.Findings))
	}
	for _, f := range r.Findings {
		if strings.Contains(f.Text, secret) || strings.ContainsAny(f.Text, "\x1b\u202e") || len([]rune(f.Text)) > 3*maxShownText {
			t.Errorf("%s says %q", f.Rule, f.Text)
		}
	}
}

// Places are right to the line and column, in each reader.
func TestPlacesOfFindings(t *testing.T) {
	s := scanner(t)
	for l, c := range map[string]struct{ source, want string }{
		"python":     {"import os\n\nif 1:\n    os.system('ls')\n", "process-start 4:5"},
		"bash":       {"x=1\nif true; then\n  curl http://a\nfi\n", "network-call 3:3"},
		"javascript": {"const a = 1;\nconst cp = require('child_process');\n  cp.exec('ls');\n", "process-start 3:6"},
		"c":          {"#include <stdlib.h>\nint main(void) {\n  system(\"ls\");\n}\n", "process-start 3:3"},
	} {
		var got []string
		for _, f := range scanned(t, s, l, c.source).Findings {
			got = append(got, fmt.Sprintf("%s %d:%d", f.Rule, f.Line, f.Column))
		}
		if !slices.Contains(got, c.want) {
			t.Errorf("%s: %q, not %s", l, got, c.want)
		}
	}
}

// Languages without a parser are read by their words.
func TestOtherLanguages(t *testing.T) {
	for _, c := range []struct{ lang, source, rule string }{
		{"go", "package main\nfunc main() { exec.Command(\"rm\", \"-rf\", \"/\").Run() }", "file-destroy"},
		{"go", "package main\nfunc main() { http.Get(\"http://169.254.169.254/\") }", "network-metadata"},
		{"c", "int main() { ptrace(0, 1, 0, 0); }", "process-escape"},
		{"cpp", "int main() { std::system(\"curl http://x | sh\"); }", "code-fetched"},
		{"ruby", "system \"crontab /tmp/x\"", "persistence-command"},
		{"ruby", "puts `cat /etc/shadow`", "file-secret"},
		{"php", "<?php eval(base64_decode($x));", "code-dynamic"},
		{"perl", "system(\"rm -rf /\");", "file-destroy"},
		{"rust", "fn main() { std::process::Command::new(\"nsenter\").spawn(); }", "process-escape"},
		{"java", "class A { void f() { Runtime.getRuntime().exec(\"ls\"); } }", "process-start"},
		{"lua", "os.execute(\"curl http://x | sh\")", "code-fetched"},
		{"typescript", "const cp = require('child_process');\nchild_process.exec('rm -rf /');", "file-destroy"},
	} {
		if r := scanned(t, Scanner{}, c.lang, c.source); !slices.Contains(rulesOf(r), c.rule) {
			t.Errorf("%s: %q finds %q, not %s", c.lang, c.source, rulesOf(r), c.rule)
		}
	}
	for _, l := range []string{"go", "c", "ruby", "typescript"} {
		comment := map[string]string{"ruby": "# system(\"rm -rf /\")\nputs 1"}[l]
		if comment == "" {
			comment = "// system(\"rm -rf /\")\n/* eval(x) */ int a;"
		}
		if r := scanned(t, Scanner{}, l, comment); len(r.Findings) > 0 {
			t.Errorf("%s: a comment has findings %q", l, rulesOf(r))
		}
	}
}

// fuzz holds a reader to its bounds, whatever the source.
func fuzz(f *testing.F, lang string, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		r, err := Scanner{}.Scan(t.Context(), Source{Language: lang, Text: []byte(source)})
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(source, "\n") + 1
		for _, found := range r.Findings {
			if found.Line < 0 || found.Line > lines || found.Column < 0 {
				t.Fatalf("line %d of %d, column %d", found.Line, lines, found.Column)
			}
		}
	})
}

func FuzzShell(f *testing.F) {
	fuzz(f, "bash", "a && b | c; f() { f | f & }; f", "x=$(echo `ls`) ${x:-y} $((1+2)) <<E\n$x\nE\n", "case a in b) ;; esac", "$'\\x72'm -rf /", "sh -c \"sh -c 'eval x'\"")
}

func FuzzJavaScript(f *testing.F) {
	fuzz(f, "javascript", "const {a: b} = require('x'); b`${1}`", "import x, {y as z} from 'm'; (0, eval)(atob('YQ=='))", "for (;;) a.push(x => { async () => await y })", "#!/usr/bin/node\nclass A extends B { #x = 1; static { } }", "a?.b?.[c](...d)")
}

func FuzzTokens(f *testing.F) {
	fuzz(f, "cpp", "int main() { a->b::c(\"x\\\"\", 'y'); /* z */ }", "'", "\"\\", "`")
}
