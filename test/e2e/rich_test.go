//go:build linux

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image/jpeg"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// richCase is a program and the values that it leaves: for each the media types,
// and a look at them.
type richCase struct {
	name, code string
	types      [][]string
	look       func(t *testing.T, values []sandbox.Rich)
	stdout     string
	code2      int // the exit status
}

const (
	plainText = "text/plain"
	html      = "text/html"
	pngType   = "image/png"
	svgType   = "image/svg+xml"
)

var richCases = []richCase{
	{name: "number", code: "6 * 7", types: [][]string{{plainText}}, look: says(0, plainText, "42")},
	{name: "nothing", code: "x = 6 * 7\nprint(x)", stdout: "42\n"},
	{name: "None", code: "print(42)", stdout: "42\n"},
	{name: "text", code: "print('a')\n'b\\u2603'", stdout: "a\n", types: [][]string{{plainText}}, look: says(0, plainText, `'b☃'`)},
	{name: "surrogate", code: "'\\udc80'", types: [][]string{{plainText}}, look: says(0, plainText, `'\udc80'`)},
	{name: "future", code: "from __future__ import annotations\n41 + 1", types: [][]string{{plainText}}, look: says(0, plainText, "42")},
	{name: "large list", code: "list(range(10**6))", types: [][]string{{plainText}}, look: func(t *testing.T, v []sandbox.Rich) {
		if s := textOf(v[0], plainText); len(s) > 70_000 || !strings.HasSuffix(s, ", … (1000000 in all)") {
			t.Errorf("%d bytes, %q", len(s), s[len(s)-20:])
		}
	}},
	{
		name: "notebook methods", types: [][]string{{"application/json", svgType, html, "text/latex", "text/markdown", plainText}},
		code: "class A:\n    def __repr__(self): return 'an A'\n    def _repr_html_(self): return '<b>A</b>', {}\n    def _repr_svg_(self): return '<svg/>'\n" +
			"    def _repr_json_(self): return {'a': [1, None]}\n    def _repr_markdown_(self): return '*A*'\n    def _repr_latex_(self): return '$A$'\n    def _repr_png_(self): return None\nA()\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			says(0, html, "<b>A</b>")(t, v)
			if got := string(v[0]["application/json"].(json.RawMessage)); got != `{"a":[1,null]}` {
				t.Errorf("json %s", got)
			}
		},
	},
	{
		name: "data frame", types: [][]string{{sandbox.MediaFrame, html, plainText}},
		code: "import pandas as pd\ndf = pd.DataFrame({'n': [1, 2**60, 3], 's': ['x', None, 'z'], 't': pd.to_datetime(['2024-01-02', None, '2024-01-04']), 'f': [0.5, float('nan'), float('inf')]})\ndf\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			const want = `{"columns":["n","s","t","f"],"index":[0,1,2],"data":[[1,"x","2024-01-02T00:00:00.000",0.5],[1152921504606846976,null,null,null],[3,"z","2024-01-04T00:00:00.000",null]],"rows":3,"truncated":false}`
			got := string(v[0][sandbox.MediaFrame].(json.RawMessage))
			if got = strings.ReplaceAll(got, "00.000Z", "00.000"); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if s := textOf(v[0], html); !strings.Contains(s, "<table") {
				t.Errorf("html %q", s)
			}
		},
	},
	{
		name: "long data frame", types: [][]string{{sandbox.MediaFrame, html, plainText}},
		code: "import pandas as pd\npd.DataFrame({'n': range(100_000)})\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			frame := frameOf(t, v[0])
			if len(frame.Data) != 1000 || frame.Rows != 100_000 || !frame.Truncated {
				t.Errorf("%d rows of %d, truncated %v", len(frame.Data), frame.Rows, frame.Truncated)
			}
		},
	},
	{
		name: "series", types: [][]string{{sandbox.MediaFrame, html, plainText}},
		code: "import pandas as pd\npd.Series([1, 2], index=['a', 'b'], name='s')\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			want := frame{Columns: []any{"s"}, Index: []any{"a", "b"}, Data: [][]any{{1.0}, {2.0}}, Rows: 2}
			if diff := cmp.Diff(want, frameOf(t, v[0])); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		},
	},
	{
		name: "figures", types: [][]string{{pngType, svgType, plainText}, {pngType, svgType, plainText}},
		code: "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()\nfig, ax = plt.subplots(); ax.bar([1], [2])\nplt.close(plt.figure())\nprint('drawn')\n", stdout: "drawn\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			for _, figure := range v {
				picture(t, figure)
				if s := textOf(figure, svgType); !strings.Contains(s, "<svg") || !strings.HasSuffix(strings.TrimSpace(s), "</svg>") {
					t.Errorf("svg %.200q", s)
				}
			}
		},
	},
	{
		name: "figure as a value", types: [][]string{{pngType, svgType, plainText}},
		code: "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nfig\n",
		look: func(t *testing.T, v []sandbox.Rich) { picture(t, v[0]) },
	},
	{
		name: "figure before a failure", types: [][]string{{pngType, svgType, plainText}, {sandbox.MediaError, plainText}}, code2: 1,
		code: "import matplotlib.pyplot as plt\nplt.plot([1])\n1/0\n",
		look: func(t *testing.T, v []sandbox.Rich) { picture(t, v[0]) },
	},
	{
		name: "image", types: [][]string{{pngType, plainText}},
		code: "from PIL import Image\nImage.new('RGB', (20, 10), 'red')\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			config, err := png.DecodeConfig(bytes.NewReader(imageOf(t, v[0], pngType)))
			if err != nil || config.Width != 20 || config.Height != 10 {
				t.Errorf("%+v, %v", config, err)
			}
		},
	},
	{
		name: "jpeg", types: [][]string{{"image/jpeg", plainText}},
		code: "import io\nfrom PIL import Image\nclass J:\n    def _repr_jpeg_(self):\n        b = io.BytesIO(); Image.new('L', (4, 4)).save(b, 'jpeg'); return b.getvalue()\nJ()\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			if _, err := jpeg.Decode(bytes.NewReader(imageOf(t, v[0], "image/jpeg"))); err != nil {
				t.Error(err)
			}
		},
	},
	{
		name: "failure", types: [][]string{{sandbox.MediaError, plainText}}, code2: 1,
		code: "def f(x):\n    return 1 / x\n\nf(0)\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			want := failure{Name: "ZeroDivisionError", Message: "division by zero", Traceback: []at{
				{"/home/user/main.py", 4, "<module>", "f(0)"}, {"/home/user/main.py", 2, "f", "return 1 / x"},
			}}
			if diff := cmp.Diff(want, failureOf(t, v[0])); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		},
	},
	{
		name: "deep failure", types: [][]string{{sandbox.MediaError, plainText}}, code2: 1, code: "def f():\n    f()\nf()\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			if f := failureOf(t, v[0]); f.Name != "RecursionError" || len(f.Traceback) != 100 || f.Omitted < 800 {
				t.Errorf("%s, %d frames, %d omitted", f.Name, len(f.Traceback), f.Omitted)
			}
		},
	},
	{
		name: "syntax error", types: [][]string{{sandbox.MediaError, plainText}}, code2: 1, code: "print(1)\nprint(2\n",
		look: func(t *testing.T, v []sandbox.Rich) {
			want := failure{Name: "SyntaxError", Message: "'(' was never closed", Traceback: []at{{"/home/user/main.py", 2, "<module>", "print(2"}}}
			if diff := cmp.Diff(want, failureOf(t, v[0])); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		},
	},
	{name: "exit", code: "import sys\nsys.exit(3)\n", code2: 3},
	{name: "value of a child", code: "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\npid and 5\n", types: [][]string{{plainText}}, look: says(0, plainText, "5")},
	{name: "ends itself", code: "import os\nos._exit(0)\n5"},
}

// TestRichValues runs every case in a sandbox. Nothing of the values stands in
// what the program printed.
func TestRichValues(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	for _, c := range richCases {
		t.Run(c.name, func(t *testing.T) {
			r, _ := run(t, bin, "python", c.code, "--memory", "512MiB")
			if r.ExitCode == nil || *r.ExitCode != c.code2 || r.Stdout != c.stdout || c.code2 == 0 && r.Stderr != "" {
				t.Fatalf("%+v %q %q", r.Cause, r.Stdout, r.Stderr)
			}
			if strings.Contains(r.Stderr, "pinfold") {
				t.Errorf("the harness is in stderr: %s", r.Stderr)
			}
			if len(r.ResultsSkipped) > 0 {
				t.Errorf("skipped: %+v", r.ResultsSkipped)
			}
			var types [][]string
			for _, v := range r.Results {
				var of []string
				for media := range v {
					of = append(of, media)
				}
				slices.Sort(of)
				types = append(types, of)
			}
			if diff := cmp.Diff(c.types, types); diff != "" {
				t.Fatalf("types -want +got:\n%s", diff)
			}
			if c.look != nil {
				c.look(t, r.Results)
			}
		})
	}
	again(t)
}

// Values that are too large are left out, and the result says so.
func TestLargeValues(t *testing.T) {
	bin := pinfold(t)
	for name, code := range map[string]string{
		"figure":  "import matplotlib.pyplot as plt\nplt.figure(figsize=(1000, 1000))\n",
		"figures": "import matplotlib.pyplot as plt\nfor _ in range(21): plt.figure(figsize=(1, 1))\n",
		"html":    "class A:\n    def _repr_html_(self): return 'x' * 2_000_000\nA()\n",
		"image":   "class A:\n    def _repr_png_(self): return b'\\x89PNG' + b'x' * 6_000_000\nA()\n",
		"failing": "class A:\n    def _repr_html_(self): 1/0\nA()\n",
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := run(t, bin, "python", code, "--memory", "512MiB")
			if r.Status != sandbox.StatusSucceeded || len(r.Results) == 0 || len(r.ResultsSkipped) != 1 {
				t.Fatalf("%s, %d results, skipped %+v, %s", r.Status, len(r.Results), r.ResultsSkipped, r.Stderr)
			}
		})
	}
}

func says(n int, media, want string) func(*testing.T, []sandbox.Rich) {
	return func(t *testing.T, v []sandbox.Rich) {
		t.Helper()
		if got := textOf(v[n], media); got != want {
			t.Errorf("%s is %q, not %q", media, got, want)
		}
	}
}

func textOf(v sandbox.Rich, media string) string {
	s, _ := v[media].(string)
	return s
}

func imageOf(t *testing.T, v sandbox.Rich, media string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(textOf(v, media))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// picture checks that the PNG of a figure is one.
func picture(t *testing.T, v sandbox.Rich) {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(imageOf(t, v, pngType)))
	if err != nil || m.Bounds().Dx() < 100 {
		t.Fatalf("no picture: %v", err)
	}
}

type frame struct {
	Columns, Index []any
	Data           [][]any
	Rows           int
	Truncated      bool
}

func frameOf(t *testing.T, v sandbox.Rich) (f frame) {
	t.Helper()
	decode(t, v[sandbox.MediaFrame], &f)
	return f
}

type at struct {
	File string
	Line int
	Name string
	Text string
}

type failure struct {
	Name, Message string
	Traceback     []at
	Omitted       int
}

func failureOf(t *testing.T, v sandbox.Rich) (f failure) {
	t.Helper()
	decode(t, v[sandbox.MediaError], &f)
	return f
}

func decode(t *testing.T, value, into any) {
	t.Helper()
	raw, ok := value.(json.RawMessage)
	if !ok {
		t.Fatalf("no JSON: %T", value)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}
