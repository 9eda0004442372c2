package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
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
		h := http.Header{"Location": {"https://evil.test/?" + test.form}, "X-" + test.form: {"x"}}
		r.Header(h)
		if all := fmt.Sprint(h); strings.Contains(all, string(core)) || !strings.Contains(all, "https://evil.test/?***") {
			t.Error(all)
		}
	}
	broken := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("ab" + canary)))
	if got, err := io.ReadAll(made(t, sandbox.SetSecret{}).Redactor().Reader(broken)); err == nil || strings.Contains(string(got), canary) {
		t.Errorf("%q %v", got, err)
	}
}

// What cannot be the beginning of the secret is not held back.
func TestRedactorHoldsNothingElseBack(t *testing.T) {
	from, to := io.Pipe()
	defer to.Close()
	r := made(t, sandbox.SetSecret{}).Redactor().Reader(from)
	go func() { _, _ = io.WriteString(to, "data: 1\n\n") }()
	got := make([]byte, 9)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "data: 1\n\n" {
		t.Errorf("%q %v", got, err)
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
