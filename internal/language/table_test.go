package language

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pinfold/sandbox"
)

// everything finds every program in /usr/bin.
func everything(candidates []string) (string, bool) { return "/usr/bin/" + candidates[0], true }

func nothing([]string) (string, bool) { return "", false }

// TestTable checks that the table is coherent: unique names, words that have a
// meaning, patterns that compile, and a plan for every entry.
func TestTable(t *testing.T) {
	names := map[string]string{}
	claim := func(owner, kind, word string) {
		key := kind + " " + word
		if other, ok := names[key]; ok {
			t.Errorf("%s belongs to %s and %s", key, other, owner)
		}
		if word == "" || kind != "interpreter" && word != strings.ToLower(word) {
			t.Errorf("%s: %s %q must be in lower case", owner, kind, word)
		}
		names[key] = owner
	}
	word := regexp.MustCompile(`\{[A-Za-z0-9_+]+\}`)
	for _, l := range Table() {
		claim(l.Name, "name", l.Name)
		for _, a := range l.Aliases {
			claim(l.Name, "name", a)
		}
		for _, e := range l.Extensions {
			claim(l.Name, "extension", e)
		}
		want := l.Name
		if want == "sh" { // a name alone does not ask for less than bash
			want = "bash"
		}
		if d, err := Detect(l.File, nil); err != nil || d.Name != want {
			t.Errorf("%s: its own file %s is %s, %v", l.Name, l.File, d.Name, err)
		}
		if l.Version.Args != nil {
			if re, err := regexp.Compile(l.Version.Pattern); err != nil || re.NumSubexp() != 1 {
				t.Errorf("%s: version pattern %q: %v", l.Name, l.Version.Pattern, err)
			}
		}
		if err := l.CompileLimits.Validate(); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
		steps, err := l.Plan("", []string{"a", "{file}"}, sandbox.Limits{}, everything)
		if err != nil {
			t.Errorf("%s: %v", l.Name, err)
			continue
		}
		if got := steps.Run.Args[len(steps.Run.Args)-2:]; !slices.Equal(got, []string{"a", "{file}"}) {
			t.Errorf("%s: arguments end with %q", l.Name, got)
		}
		all := append(slices.Clone(steps.Run.Env), steps.Run.Args[:len(steps.Run.Args)-1]...)
		if steps.Compile != nil {
			all = append(all, steps.Compile.Args...)
		}
		for _, s := range all {
			if w := word.FindString(s); w != "" {
				t.Errorf("%s: nothing fills in %s of %q", l.Name, w, s)
			}
		}
		keys := map[string]bool{}
		for _, kv := range steps.Run.Env {
			k, _, ok := strings.Cut(kv, "=")
			if !ok || keys[k] {
				t.Errorf("%s: %q is no variable, or there twice", l.Name, kv)
			}
			keys[k] = true
		}
	}
}

func TestTableIsACopy(t *testing.T) {
	Table()[0].Name = "changed"
	if got := Table()[0].Name; got != "python" {
		t.Fatalf("name = %q", got)
	}
}

func TestFind(t *testing.T) {
	for word, want := range map[string]string{
		"python": "python", "Python3": "python", "JS": "javascript", "node": "javascript", "ts": "typescript",
		"shell": "sh", "c++": "cpp", "golang": "go", "rs": "rust", "R": "r",
	} {
		if l, err := Find(word); err != nil || l.Name != want {
			t.Errorf("Find(%q) = %q, %v; want %q", word, l.Name, err, want)
		}
	}
	for word, hint := range map[string]string{
		"pyhton":                                `did you mean "python"? the languages are python, javascript`,
		"cobol":                                 "the languages are python, javascript",
		"":                                      "the languages are python, javascript",
		"\x1b[2J" + strings.Repeat("x", 10_000): "the languages are python, javascript",
	} {
		_, err := Find(word)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.CodeLanguageUnknown || !strings.HasPrefix(e.Hint, hint) {
			t.Fatalf("Find(%.20q) = %v, hint %q; want hint %q", word, err, sandbox.AsError(err).Hint, hint)
		}
		if len(e.Message) > 200 || strings.Contains(e.Message, "\x1b") {
			t.Errorf("message %q is not safe to print", e.Message)
		}
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct{ file, line, want string }{
		{"main.py", "", "python"},
		{"dir.d/MAIN.PY", "import os", "python"},
		{"analysis.R", "", "r"},
		{"x.sh", "#!/bin/bash -e\n", "bash"},
		{"x.sh", "#!/opt/unknown/thing\n", "bash"},
		{"x.sh", "set -o pipefail\n", "bash"},
		{"x.sh", "#!/bin/sh\n", "sh"},
		{"script", "#!/usr/bin/env python3.11\nimport os\n", "python"},
		{"script", "#!/usr/bin/env -S node --trace-warnings", "javascript"},
		{"script", "#! /usr/bin/env LANG=C perl -w", "perl"},
		{"script", "#!/usr/bin/lua5.4", "lua"},
		{"script", "#!/usr/bin/tclsh8.6", "tcl"},
		{"script", "#!/usr/bin/Rscript", "r"},
		{"x.mts", "", "typescript"},
		{"x.cxx", "", "cpp"},
		{"script", "", ""},
		{"script", "#!", ""},
		{"script", "#!/usr/bin/env", ""},
		{"script", "#!" + strings.Repeat(" ", 300) + "/bin/sh", ""},
		{"x.txt", "\x7fELF\x00\xff", ""},
		{".py", "", "python"},
		{"-", "", ""},
	} {
		l, err := Detect(c.file, []byte(c.line))
		if l.Name != c.want || (err == nil) != (c.want != "") {
			t.Errorf("Detect(%q, %q) = %q, %v; want %q", c.file, c.line, l.Name, err, c.want)
		}
	}
}

func FuzzDetect(f *testing.F) {
	f.Add("a.py", []byte("#!/usr/bin/env python3\n"))
	f.Fuzz(func(t *testing.T, name string, line []byte) {
		l, err := Detect(name, line)
		if (err == nil) == (l.Name == "") {
			t.Fatalf("%q, %v", l.Name, err)
		}
		if err != nil && sandbox.SafeText(err.Error(), 1000) != err.Error() {
			t.Fatalf("message %q is not safe to print", err)
		}
	})
}

func FuzzVersion(f *testing.F) {
	f.Add([]byte("Python 3.11.2\n"))
	f.Add([]byte("gcc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright"))
	f.Fuzz(func(t *testing.T, output []byte) {
		for _, l := range Table() {
			if v, ok := l.Version.Parse(output); ok && (len(v) > 64 || sandbox.SafeText(v, 64) != v) {
				t.Fatalf("%s: version %q", l.Name, v)
			}
		}
	})
}

func TestVersionParse(t *testing.T) {
	for _, c := range []struct{ language, output, want string }{
		{"python", "Python 3.13.0rc1\n", "3.13.0rc1"},
		{"javascript", "v24.1.0\n", "24.1.0"},
		{"c", "gcc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022\n", "12.2.0"},
		{"c", "gcc (GCC) 15.1.1 20250521 (Red Hat 15.1.1-2)\n", "15.1.1"},
		{"c", "Debian clang version 14.0.6\nTarget: x86_64\n", "14.0.6"},
		{"go", "go version go1.26.8 linux/amd64\n", "1.26.8"},
		{"rust", "rustc 1.63.0\n", "1.63.0"},
		{"java", "openjdk 17.0.15 2025-04-15\nOpenJDK Runtime", "17.0.15"},
		{"php", "PHP 8.2.29 (cli) (built: Jul  3 2025)\n", "8.2.29"},
		{"r", "Rscript (R) version 4.2.2 (2022-10-31)\n", "4.2.2"},
		{"lua", "LuaJIT 2.1.0-beta3 -- Copyright\n", "2.1.0"},
		{"tcl", "9.0.1\n", "9.0.1"},
		{"python", "Python \x1b[31m3.11\n", ""},
		{"python", "Python 3." + strings.Repeat("1", 100), ""},
		{"python", strings.Repeat("x", MaxVersionOutput) + "\nPython 3.11", ""},
		{"python", "", ""},
		{"sh", "anything 1.0", ""},
	} {
		l, err := Find(c.language)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := l.Version.Parse([]byte(c.output)); got != c.want || ok != (c.want != "") {
			t.Errorf("%s %.40q: %q, %v; want %q", c.language, c.output, got, ok, c.want)
		}
	}
}

func TestPlanInterpreted(t *testing.T) {
	l, _ := Find("python")
	got, err := l.Plan("analysis.py", []string{"-v", "{cpus}"}, sandbox.Limits{CPUs: 1.5}, everything)
	if err != nil {
		t.Fatal(err)
	}
	want := Steps{Run: Step{
		Args: []string{"/usr/bin/python3", "analysis.py", "-v", "{cpus}"},
		Env: []string{
			"LANG=C.UTF-8", "LSAN_OPTIONS=detect_leaks=0", "MKL_NUM_THREADS=2", "MPLBACKEND=Agg",
			"MPLCONFIGDIR=/tmp/.cache/matplotlib", "NUMEXPR_MAX_THREADS=2", "OMP_NUM_THREADS=2", "OPENBLAS_NUM_THREADS=2",
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin", "PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_RETRIES=0", "POLARS_MAX_THREADS=2",
			"PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1", "TERM=dumb", "TMPDIR=/tmp",
			"XDG_CACHE_HOME=/tmp/.cache", "npm_config_fetch_retries=0", "npm_config_update_notifier=false",
		},
		Limits: sandbox.Limits{CPUs: 1.5}.WithDefaults(),
	}, Files: []File{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("steps (-want +got):\n%s", diff)
	}
}

func TestPlanCompiled(t *testing.T) {
	l, _ := Find("java")
	got, err := l.Plan("@x.java", []string{"@file"}, sandbox.Limits{MemoryBytes: 400 << 20, WallTimeMS: 1000}, everything)
	if err != nil {
		t.Fatal(err)
	}
	if got.Dir != UsualPlaces().Support() || len(got.Files) != 1 || got.Files[0].Path != "/tmp/.pinfold/javac.sh" {
		t.Errorf("dir %q, files %v", got.Dir, got.Files)
	}
	if c := got.Compile; !slices.Contains(c.Args, "./@x.java") || !slices.Contains(c.Args, "-J-Xmx768m") ||
		c.Limits.MemoryBytes != 1<<30 || c.Limits.WallTimeMS != 60_000 || c.Limits.DiskBytes != 256<<20 {
		t.Errorf("compile = %+v", c)
	}
	if r := got.Run; !slices.Contains(r.Args, "-Xmx300m") || r.Limits.WallTimeMS != 1000 || r.Args[len(r.Args)-1] != "@file" {
		t.Errorf("run = %+v", r)
	}
}

func TestPlanRefusals(t *testing.T) {
	java, _ := Find("java")
	for _, c := range []struct {
		name, file   string
		lookup       Lookup
		code, phrase string
	}{
		{"no toolchain", "", nothing, sandbox.CodeLanguageMissing, "apt-get install dash default-jdk-headless"},
		{
			"half a toolchain", "", func(c []string) (string, bool) { return "/bin/" + c[0], c[0] != "javac" },
			sandbox.CodeLanguageMissing, "apt-get install default-jdk-headless",
		},
		{"file out of the working directory", "../Main.java", everything, sandbox.CodePathInvalid, "relative to /home/user"},
		{"file with a NUL", "a\x00.java", everything, sandbox.CodePathInvalid, "relative to /home/user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := java.Plan(c.file, nil, sandbox.Limits{}, c.lookup)
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Hint, c.phrase) {
				t.Fatalf("err = %v, hint %q; want %s, %q", err, sandbox.AsError(err).Hint, c.code, c.phrase)
			}
		})
	}
}

// Only what an interpreter reads when it starts keeps a program from a warm one.
func TestReadsAtStart(t *testing.T) {
	for _, test := range []struct {
		language, variable string
		want               bool
	}{
		{"python", "PYTHONHASHSEED", true},
		{"python", "NODE_ENV", false},
		{"javascript", "NODE_OPTIONS", true},
		{"typescript", "NODE_PATH", true},
		{"javascript", "PYTHONPATH", false},
		{"python", "LD_PRELOAD", true},
		{"javascript", "LANG", true},
		{"python", "MY_PYTHON", false},
		{"python", "TZ", false},
	} {
		l, err := Find(test.language)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.ReadsAtStart(test.variable); got != test.want {
			t.Errorf("%s reads %s when it starts: %t", test.language, test.variable, got)
		}
	}
}
