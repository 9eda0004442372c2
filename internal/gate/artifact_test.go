package gate

import (
	"archive/zip"
	"bytes"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// file puts one artifact through a gate.
func file(t *testing.T, g sandbox.Gate, name, media, content string) (string, *sandbox.GateResult, error) {
	t.Helper()
	x := made(t, g)
	out, err := x.Artifact(sandbox.Artifact{Path: name, MediaType: media, Size: int64(len(content))}, []byte(content))
	r := &sandbox.Result{}
	x.Result(r, nil, nil)
	return string(out), r.Gate, err
}

func isWithheld(err error) bool {
	e := sandbox.AsError(err)
	return e != nil && e.Code == sandbox.CodeWithheld
}

func TestFormulas(t *testing.T) {
	g := sandbox.Gate{Formulas: sandbox.GateRedact}
	for given, want := range map[string]string{
		"a,=1+1\n":                       "a,'=1+1\n",
		"=cmd|' /C calc'!A0,b":           "'=cmd|' /C calc'!A0,b",
		"a;@SUM(1)\r\n+HYPERLINK(1)":     "a;'@SUM(1)\r\n'+HYPERLINK(1)",
		"\"=1+1\",\"x,=y\"\n":            "\"'=1+1\",\"x,=y\"\n",
		"-2+3+cmd|x":                     "'-2+3+cmd|x",
		"\"a\n=1+1\"":                    "\"a\n'=1+1\"",
		"\uff1d1":                        "'\uff1d1",
		"a\t=1":                          "a\t'=1",
		"a\"b,=1+1":                      "a\"b,'=1+1", // a quote within a cell is none
		"a;\"b,=1+1":                     "a;\"b,'=1+1",
		"\"a\"b\"c,=1+1":                 "\"a\"b\"c,'=1+1",
		"\"a\"\",=x\",=1":                "\"a\"\",=x\",'=1",
		"-1,+2.5,-1e-3,- ,\"-4\",-3%\n-": "-1,+2.5,-1e-3,- ,\"-4\",-3%\n-", // numbers and signs alone
		"a=b,c-d,e@f.test,1+1\n":         "a=b,c-d,e@f.test,1+1\n",
	} {
		got, r, err := file(t, g, "t.csv", "text/csv", given)
		found := outcome(r, "formulas").Count > 0
		if err != nil || got != want || found != (given != want) {
			t.Errorf("%q: %q, %v, %+v", given, got, err, r)
		}
		if got, r, err := file(t, g, "t.txt", "text/plain", given); got != given || err != nil || outcome(r, "formulas").Count > 0 { // no table
			t.Errorf("%q: %q, %v", given, got, err)
		}
	}
}

func workbook(t *testing.T, parts map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range []string{"[Content_Types].xml", "xl/workbook.xml", "xl/worksheets/sheet1.xml", "xl/vbaProject.bin"} {
		if content, ok := parts[name]; ok {
			w, err := z.Create(name)
			if err == nil {
				_, err = w.Write([]byte(content))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWorkbooks(t *testing.T) {
	const xlsx = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	const plain = `<worksheet><c><v>1</v></c><foo/></worksheet>`
	base := map[string]string{"[Content_Types].xml": "<Types/>", "xl/workbook.xml": "<workbook/>", "xl/worksheets/sheet1.xml": plain}
	with := func(name, content string) string {
		parts := map[string]string{name: content}
		for k, v := range base {
			if k != name {
				parts[k] = v
			}
		}
		return workbook(t, parts)
	}
	g := sandbox.Gate{Formulas: sandbox.GateRedact}
	if got, _, err := file(t, g, "a.xlsx", xlsx, workbook(t, base)); err != nil || got == "" {
		t.Errorf("without formulas: %v", err)
	}
	for name, given := range map[string]string{
		"formula": with("xl/worksheets/sheet1.xml", `<worksheet><c><f>1+1</f></c></worksheet>`), "prefixed": with("xl/worksheets/sheet1.xml", `<x:c><x:f t="a">1</x:f></x:c>`),
		"macros": with("xl/vbaProject.bin", "x"), "bomb": with("xl/worksheets/sheet1.xml", strings.Repeat(" ", maxSheetBytes+1)),
		"cut off": workbook(t, base)[:200],
	} {
		if got, r, err := file(t, g, "a.xlsx", xlsx, given); !isWithheld(err) || got != "" {
			t.Errorf("%s: %v %+v", name, err, r)
		}
	}
}

func TestScripts(t *testing.T) {
	g := sandbox.Gate{Scripts: sandbox.GateWithhold}
	for _, given := range []string{
		"<script>1</script>", "<SCRIPT\nsrc=x>", "<svg:script/>", "<p onclick=x>", "<img src=x OnError = 'x'>", "<svg/onload=x>", "<title><script></title>", "<!-- <script> -->",
		"<a href=javascript:x>", "<a href='java\tscript:x'>", "<a href=\"&#106;avascript&colon;x\">", "<iframe srcdoc=x>", "<a href='data:text/html,x'>",
		"<!DOCTYPE svg [<!ENTITY x '&lt;script>'>]>", "<meta http-equiv=refresh>", "<foreignObject >", "<animate attributeName=href>",
	} {
		for media, before := range map[string]string{"image/svg+xml": `<svg xmlns="http://www.w3.org/2000/svg">`, "text/html": "<!DOCTYPE html><html>", "application/octet-stream": "<html>"} {
			if got, _, err := file(t, g, "a", media, before+given); !isWithheld(err) || got != "" {
				t.Errorf("%s as %s: %v", given, media, err)
			}
		}
		if got, _, err := file(t, g, "a.txt", "text/plain", "see "+given); err != nil || got != "see "+given { // no browser runs it
			t.Errorf("%s in a text: %v", given, err)
		}
	}
	for _, given := range []string{`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><rect fill="none" width="1"/><text>on = off; javascript</text></svg>`, "<html><p class='once'>1 &lt; 2: ok</p><a href='https://a.test/?on=1'>x</a></html>"} {
		if got, r, err := file(t, g, "a.svg", "image/svg+xml", given); err != nil || got != given {
			t.Errorf("the harmless %s: %v %+v", given, err, r)
		}
	}
}

func TestMediaTypes(t *testing.T) {
	const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	g := sandbox.Gate{MediaTypes: sandbox.GateWithhold}
	for _, test := range []struct {
		name, media, content string
		agrees               bool
	}{
		{"a.png", "image/png", png, true},
		{"a.png", "image/png", "<html>", false},
		{"a.csv", "text/csv", "a,b\n1,2\n", true},
		{"a.csv", "text/csv", "<!DOCTYPE html><html><script>", false},
		{"a.csv", "text/csv", "MZ\x90\x00\x03\x00\x00\x00", false},
		{"a.txt", "text/plain", "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00", false},
		{"a.html", "text/html", "just <b>this</b>", true},
		{"a.html", "text/html", png, false},
		{"a.md", "text/markdown", "<h1 align=center>x</h1>", true},
		{"a.json", "application/json", `{"a": 1}`, true},
		{"a.json", "application/json", png, false},
		{"a.svg", "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg"/>`, true},
		{"a.gz", "application/gzip", "\x1f\x8b\x08", true},
		{"a.zip", "application/zip", "PK\x03\x04rest", true},
		{"a.pdf", "application/pdf", "%PDF-1.7\n", true},
		{"a.pdf", "application/pdf", "PK\x03\x04", false},
		{"a.bin", "application/octet-stream", png, true}, // a name that says nothing
		{"a.png", "image/png", "", true},
	} {
		if _, r, err := file(t, g, test.name, test.media, test.content); (err == nil) != test.agrees || err != nil && !isWithheld(err) {
			t.Errorf("%s %.20q: %v %+v", test.name, test.content, err, r)
		}
	}
	only := sandbox.Gate{Artifacts: &sandbox.GateArtifacts{MediaTypes: []string{"text/csv", "image/*"}}}
	for name, want := range map[string]bool{"a.png": true, "a.csv": true, "a.html": false, "a.gif": false} {
		media := map[string]string{"a.png": "image/png", "a.csv": "text/csv", "a.html": "text/html", "a.gif": "image/gif"}[name]
		content := map[string]string{"a.png": png, "a.csv": "a,b\n1,2\n", "a.html": "<html>", "a.gif": "<html>"}[name]
		if _, _, err := file(t, only, name, media, content); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Numbers and sizes hold for what comes out; what is withheld does not count.
func TestBounds(t *testing.T) {
	x := made(t, sandbox.Gate{Keys: sandbox.GateWithhold, Artifacts: &sandbox.GateArtifacts{Max: 2, MaxBytes: 10, MaxTotalBytes: 12}})
	for i, test := range []struct {
		content string
		out     bool
	}{{"12345678901", false}, {githubToken[:0] + "1234567890", true}, {"123", false}, {"12", true}, {"", false}} {
		_, err := x.Artifact(sandbox.Artifact{Path: "a", MediaType: "text/plain", Size: int64(len(test.content))}, []byte(test.content))
		if (err == nil) != test.out {
			t.Errorf("%d: %v", i, err)
		}
	}
	none := made(t, sandbox.Gate{Artifacts: &sandbox.GateArtifacts{MediaTypes: []string{}}})
	if _, err := none.Artifact(sandbox.Artifact{Path: "a", MediaType: "text/plain"}, nil); !isWithheld(err) {
		t.Errorf("%v", err)
	}
	// What is too large to be read does not come out, but where all checks only flag.
	big := sandbox.Artifact{Path: "big", MediaType: "text/plain", Size: MaxArtifactBytes + 1}
	if err := made(t, every(sandbox.GateFlag)).Unread(big); err != nil {
		t.Error(err)
	}
	if err := made(t, sandbox.Gate{Keys: sandbox.GateRedact}).Unread(big); !isWithheld(err) {
		t.Error(err)
	}
}

// From what is no text nothing can be taken, so it is withheld; and the name is looked at.
func TestBinaryAndNames(t *testing.T) {
	g := sandbox.Gate{Secrets: sandbox.GateRedact, ControlCharacters: sandbox.GateRedact}
	if got, r, err := file(t, g, "a.bin", "application/octet-stream", "\x00\x01\x1b[2J"+value); !isWithheld(err) || got != "" || outcome(r, "secrets").Outcome != sandbox.GateWithhold {
		t.Errorf("%v %+v", err, r)
	}
	if got, _, err := file(t, g, "a.bin", "application/octet-stream", "\x00\x01\x1b[2J"); err != nil || got == "" {
		t.Errorf("%v", err)
	}
	if got, r, err := file(t, g, "a.txt", "text/plain", "a "+value); err != nil || got != "a [secret door]" {
		t.Errorf("%q %v %+v", got, err, r)
	}
	x := made(t, sandbox.Gate{Keys: sandbox.GateWithhold})
	_, err := x.Artifact(sandbox.Artifact{Path: githubToken, MediaType: "text/plain"}, nil)
	if !isWithheld(err) || strings.Contains(err.Error(), githubToken) {
		t.Errorf("%v", err)
	}
	r := &sandbox.Result{ArtifactsSkipped: []sandbox.SkippedArtifact{{Path: githubToken, Code: sandbox.CodeWithheld}}}
	if x.Result(r, nil, nil); r.ArtifactsSkipped[0].Path != "" {
		t.Errorf("%+v", r.ArtifactsSkipped)
	}
}

func TestContext(t *testing.T) {
	lines := strings.Repeat("0123456789 é\n", 1000)
	_, r := pass(t, sandbox.Gate{ContextBytes: 1000}, lines)
	e := r.Context.Stdout
	head, tail, _ := strings.Cut(e.Text, "[")
	if len(e.Text) > 1000 || !strings.HasPrefix(lines, head) || !strings.HasSuffix(lines, tail[strings.Index(tail, "]\n")+2:]) {
		t.Errorf("%q", e.Text)
	}
	if kept := len(lines) - int(e.LeftOutBytes); kept < 700 || e.LeftOutFrom != int64(len(head)) || !strings.Contains(e.Text, "run_a") {
		t.Errorf("%d %+v", kept, e)
	}
	if _, r := pass(t, sandbox.Gate{ContextBytes: 1000}, "short"); r.Context.Stdout != (sandbox.GateExcerpt{Text: "short"}) || r.Context.Stderr.Text != "" {
		t.Errorf("%+v", r.Context)
	}
}
