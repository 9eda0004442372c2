package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"pinfold/sandbox"
)

const canary = `canary+/"4f1e`

func made(t *testing.T, s sandbox.SetSecret) Secret {
	t.Helper()
	s.Hosts, s.Value = []string{"a.test"}, canary
	s, err := s.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return New("token", s)
}

// A secret stands in its one place, and what a program put there does not.
func TestPut(t *testing.T) {
	for _, test := range []struct {
		given      sandbox.SetSecret
		name, want string
	}{
		{sandbox.SetSecret{}, "Authorization", "Bearer " + canary},
		{sandbox.SetSecret{Header: "X-Api-Key: {}"}, "X-Api-Key", canary},
		{sandbox.SetSecret{Header: "x-token:token={};v=1"}, "X-Token", "token=" + canary + ";v=1"},
		{sandbox.SetSecret{Basic: "robot"}, "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:"+canary))},
	} {
		r, _ := http.NewRequest(http.MethodGet, "https://a.test/x?y=1", nil)
		r.Header = http.Header{"Authorization": {"one", "two"}, "X-Token": {"mine"}, "X_token": {"mine"}, "X-Api-Key": {"mine"}}
		made(t, test.given).Put(r)
		if got := r.Header[test.name]; len(got) != 1 || got[0] != test.want || r.URL.RawQuery != "y=1" {
			t.Errorf("%+v: %q %s", test.given, got, r.URL)
		}
		if test.name == "X-Token" && r.Header["X_token"] != nil {
			t.Error("the program's own goes with it")
		}
	}
	r, _ := http.NewRequest(http.MethodGet, "https://a.test/x?y=1;z&Key=mine&%6bey=mine&keyed=1", nil)
	made(t, sandbox.SetSecret{Query: "key"}).Put(r)
	if want := "y=1;z&keyed=1&key=" + url.QueryEscape(canary); r.URL.RawQuery != want {
		t.Errorf("%s, want %s", r.URL.RawQuery, want)
	}
}

// However a secret is printed, its value is not.
func TestValueIsNotPrinted(t *testing.T) {
	s := made(t, sandbox.SetSecret{})
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "at", &s)
	text, err := json.Marshal(s)
	holder := struct{ secrets map[string]Secret }{map[string]Secret{"a": s}}
	all := log.String() + string(text) + fmt.Sprintf("%v %+v %#v %v %+v %#v %v", s, s, s, &s, holder, holder, &holder)
	if err != nil || strings.Contains(all, "canary") || strings.Contains(all, fmt.Sprintf("%x", "canary")) {
		t.Errorf("%v %s", err, all)
	}
}

// Answers have no form of the secret, wherever reads cut them, and as many bytes as before.
func TestRedactor(t *testing.T) {
	quoted, _ := json.Marshal(canary)
	for _, test := range []struct {
		given sandbox.SetSecret
		form  string
	}{
		{sandbox.SetSecret{}, canary},
		{sandbox.SetSecret{}, url.QueryEscape(canary)},
		{sandbox.SetSecret{}, base64.StdEncoding.EncodeToString([]byte(canary))},
		{sandbox.SetSecret{}, strings.Trim(string(quoted), `"`)},
		{sandbox.SetSecret{Basic: "robot"}, base64.StdEncoding.EncodeToString([]byte("robot:" + canary))},
	} {
		r := made(t, test.given).Redactor()
		core := []byte(strings.TrimRight(test.form, "=")) // the end of a form says nothing
		text := "begin canary+" + test.form + test.form + " middle " + test.form[:len(test.form)/2] + strings.Repeat("x", 100_000) + test.form
		for name, from := range map[string]io.Reader{"whole": strings.NewReader(text), "by bytes": iotest.OneByteReader(strings.NewReader(text)), "the end with data": iotest.DataErrReader(strings.NewReader(text))} {
			got, err := io.ReadAll(r.Reader(from))
			if err != nil || len(got) != len(text) || bytes.Contains(got, core) || !bytes.HasPrefix(got, []byte("begin canary+")) ||
				!bytes.Contains(got, []byte(" middle "+test.form[:len(test.form)/2]+strings.Repeat("x", 99_000))) {
				t.Errorf("%s, %s: %v %.200s", test.form, name, err, got)
			}
		}
		h := http.Header{"Location": {"https://evil.test/?" + test.form}, "X-" + test.form: {"x"}, strings.ToUpper("X-" + test.form): {"x"}}
		r.Header(h)
		if all := fmt.Sprint(h); strings.Contains(all, string(core)) || len(h) != 1 || !strings.Contains(all, "https://evil.test/?***") {
			t.Error(all)
		}
	}
	broken := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("ab" + canary)))
	if got, err := io.ReadAll(made(t, sandbox.SetSecret{}).Redactor().Reader(broken)); err == nil || strings.Contains(string(got), canary) {
		t.Errorf("%q %v", got, err)
	}
}

// Lines are not held back.
func TestRedactorPassesLinesAtOnce(t *testing.T) {
	from, to := io.Pipe()
	defer to.Close()
	r := made(t, sandbox.SetSecret{}).Redactor().Reader(from)
	go func() { _, _ = io.WriteString(to, "data: 1\n\n") }()
	got := make([]byte, 9)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "data: 1\n\n" {
		t.Errorf("%q %v", got, err)
	}
}

// saysAndWaits is a server that says a text and then no more: whoever asks again waits.
type saysAndWaits struct{ text string }

func (s *saysAndWaits) Read(into []byte) (int, error) {
	if s.text == "" {
		return 0, errWaits
	}
	n := copy(into, s.text)
	s.text = s.text[n:]
	return n, nil
}

var errWaits = errors.New("it would wait")

// Whether a text is how the secret begins, and how long the secret is, cannot be seen from
// what of it comes (an attack letter by letter).
func TestWhatIsHeldBackTellsNothing(t *testing.T) {
	came := func(secret, text string) int {
		s := New("token", sandbox.SetSecret{Hosts: []string{"a.test"}, Header: sandbox.DefaultSecretHeader, Value: secret})
		got, err := io.ReadAll(s.Redactor().Reader(&saysAndWaits{text: text}))
		if !errors.Is(err, errWaits) {
			t.Errorf("%v", err)
		}
		return len(got)
	}
	for _, before := range []string{"", "data: ", "line\n", strings.Repeat("x", 500)} {
		for k := range len(canary) {
			right, wrong := before+canary[:k], before+strings.Repeat("z", k)
			if a, b := came(canary, right), came(canary, wrong); a != b {
				t.Errorf("%.10s: of the first %d letters %d bytes come, of others %d", before, k, a, b)
			}
		}
		if a, b := came("12345678", before), came("123456789", before); a != b {
			t.Errorf("%.10s: %d bytes come, and %d where the secret is longer", before, a, b)
		}
	}
	if n := came(canary, strings.Repeat("x", 1000)); n < 1000-4*holdStep {
		t.Errorf("of 1000 bytes %d come", n)
	}
	if n := came(canary, "a line\nand more"); n != len("a line\n") {
		t.Errorf("%d bytes come", n)
	}
}

// Every program's way of writing the secret is a form of it.
func TestForms(t *testing.T) {
	const value = `k/e+y "a'b<c>&\=~(1)*!`
	s := New("token", sandbox.SetSecret{Hosts: []string{"a.test"}, Basic: "robot", Value: value})
	for name, form := range map[string]string{
		"JSON with HTML in it":     `k/e+y \"a'b<c>&\\=~(1)*!`,
		"JSON for HTML":            `k/e+y \"a'b\u003cc\u003e\u0026\\=~(1)*!`,
		"JSON of PHP":              `k\/e+y \"a'b<c>&\\=~(1)*!`,
		"a URL, in small letters":  `k%2fe%2by%20%22a%27b%3cc%3e%26%5c%3d~%281%29%2a%21`,
		"a form":                   url.QueryEscape(value),
		"a path":                   url.PathEscape(value),
		"Python's quote":           `k/e%2By%20%22a%27b%3Cc%3E%26%5C%3D~%281%29%2A%21`,
		"encodeURIComponent":       `k%2Fe%2By%20%22a'b%3Cc%3E%26%5C%3D~(1)*!`,
		"HTML of Go":               html.EscapeString(value),
		"HTML of Go's templates":   template.HTMLEscapeString(value),
		"HTML in text":             `k/e+y "a'b&lt;c&gt;&amp;\=~(1)*!`,
		"HTML of Python":           `k/e+y &quot;a&#x27;b&lt;c&gt;&amp;\=~(1)*!`,
		"HTML with the plus":       `k/e&#43;y &#34;a&#39;b&lt;c&gt;&amp;\=~(1)*!`,
		"base64 for URLs, no =":    base64.RawURLEncoding.EncodeToString([]byte(value)),
		"a user's base64":          base64.StdEncoding.EncodeToString([]byte("robot:" + value)),
		"a user's, no =":           base64.RawStdEncoding.EncodeToString([]byte("robot:" + value)),
		"a user's for URLs":        base64.URLEncoding.EncodeToString([]byte("robot:" + value)),
		"a user's for URLs, no = ": base64.RawURLEncoding.EncodeToString([]byte("robot:" + value)),
	} {
		if got := string(s.Redactor().Bytes([]byte("a " + form + " z"))); got != "a "+strings.Repeat("*", len(form))+" z" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestFixed(t *testing.T) {
	f, err := NewFixed(map[string]sandbox.SetSecret{"a": {Hosts: []string{"a.test"}, Value: "12345678"}})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := f.Find(t.Context(), "any", "a"); err != nil || s.Name != "a" {
		t.Errorf("%v %v", s, err)
	}
	if _, err := f.Find(t.Context(), "any", "b"); sandbox.AsError(err).Code != sandbox.CodeNotFound {
		t.Error(err)
	}
	if _, err := NewFixed(map[string]sandbox.SetSecret{"A": {Hosts: []string{"a.test"}, Value: "12345678"}}); err == nil {
		t.Error("a wrong name is taken")
	}
}
