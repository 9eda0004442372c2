package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// throughVisible writes text in pieces of n bytes.
func throughVisible(t *testing.T, text string, n int) string {
	t.Helper()
	var out bytes.Buffer
	v := &visible{w: &out}
	for len(text) > 0 {
		k := min(n, len(text))
		if got, err := v.Write([]byte(text[:k])); got != k || err != nil {
			t.Fatalf("Write = %d, %v", got, err)
		}
		text = text[k:]
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 漢字 🙂\tx\n": "plain é 漢字 🙂\tx\n",
		"\x1b]52;c;x\x07":   `\x1b]52;c;x\x07`,
		"a\rb":              `a\x0db`,
		"a\r\nb":            "a\r\nb",
		"a\r":               `a\x0d`,
		"\u009b2J\u202e":    `\u009b2J\u202e`,
		"\xff\xc3":          `\xff\xc3`,
		"\xe6\xbc":          `\xe6\xbc`,
	} {
		for n := 1; n <= 4; n++ {
			if diff := cmp.Diff(want, throughVisible(t, in, n)); diff != "" {
				t.Errorf("%q in pieces of %d (-want +got):\n%s", in, n, diff)
			}
		}
	}
}

// FuzzVisible: whatever is written in whatever pieces, nothing that a terminal
// obeys comes out, and pieces make no difference.
func FuzzVisible(f *testing.F) {
	f.Add("\x1b[2J\r\n\xc2\x9b\xe2\x80\xae", uint8(1))
	f.Fuzz(func(t *testing.T, text string, piece uint8) {
		out := throughVisible(t, text, int(piece%7)+1)
		if diff := cmp.Diff(throughVisible(t, text, len(text)+1), out); diff != "" {
			t.Fatalf("pieces matter:\n%s", diff)
		}
		for i, r := range out {
			bad := unicode.Is(unicode.Bidi_Control, r) || unicode.IsControl(r) && r != '\n' && r != '\t'
			if r == '\r' {
				bad = !strings.HasPrefix(out[i:], "\r\n")
			}
			if bad {
				t.Fatalf("%q lets %q through", text, r)
			}
		}
		if !utf8.ValidString(out) {
			t.Fatalf("%q becomes invalid UTF-8", text)
		}
	})
}

// FuzzPrintableJSON: it means the same, and nothing in it acts on a terminal.
func FuzzPrintableJSON(f *testing.F) {
	f.Add("\u009b \u202e \x7f \U000e0001 é")
	f.Fuzz(func(t *testing.T, text string) {
		plain, err := json.Marshal([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		safe := printableJSON(plain)
		var a, b []string
		if json.Unmarshal(plain, &a) != nil || json.Unmarshal(safe, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%q became %q", plain, safe)
		}
		if i := bytes.IndexFunc(safe, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }); i >= 0 {
			t.Fatalf("%q keeps a control character", safe)
		}
	})
}
