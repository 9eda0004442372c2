package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// verify is what "pinfold receipt verify FILE" does with a file.
func verify(t *testing.T, text string, key Key) error {
	t.Helper()
	r, check, err := ParseReceipt([]byte(text))
	if err != nil {
		return err
	}
	e, _, err := VerifyReceipt(r, key)
	if err == nil && check != nil {
		err = check(e)
	}
	return err
}

// recorded is a thing as JSON, with the receipt that it was recorded with.
func recorded(t *testing.T, e records.Event, with func(*sandbox.Receipt) any) (text string, r *sandbox.Receipt, key Key) {
	t.Helper()
	l := open(t, Options{})
	r, err := l.Record(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = ParseKey(l.PublicKey()); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(with(r))
	if err != nil {
		t.Fatal(err)
	}
	return string(b), r, key
}

// Who forges a result cannot have it pass by the form of its file: by what is left out, by
// what is said twice, or by making it look like a receipt by itself.
func TestForgedFilesProveNothing(t *testing.T) {
	zero := 0
	result := &sandbox.Result{
		ID: "run_a", Status: sandbox.StatusSucceeded, ExitCode: &zero, Cause: sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 0"},
		Stdout: "real", Metadata: map[string]string{"a": "x", "A": "y"},
		Results:   []sandbox.Rich{{"application/json": json.RawMessage(`{"b":1,"B":2,"b":3}`)}},
		Isolation: sandbox.Isolation{Driver: "native", Enforced: []string{"memory"}},
	}
	text, r, key := recorded(t, records.RunEvent(result), func(r *sandbox.Receipt) any { result.Receipt = r; return result })
	whole, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	bare, inside := string(whole), strings.Trim(string(whole), "{}")
	both := `{"entry":` + r.Leaf + `,"receipt":` + bare + `}`
	stdout, forged := `"stdout":"real"`, `"stdout":"forged"`
	for name, good := range map[string]string{"result": text, "receipt": bare, "entry": both} {
		if err := verify(t, good, key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, forgery := range map[string]string{
		"another":              strings.Replace(text, stdout, forged, 1),
		"without the salt":     strings.Replace(strings.Replace(text, stdout, forged, 1), `"salt":"`+r.Salt+`",`, "", 1),
		"said twice":           strings.Replace(text, stdout, forged+","+stdout, 1),
		"said in capitals":     strings.Replace(text, stdout, forged+`,"STDOUT":"real"`, 1),
		"in folded letters":    strings.Replace(text, stdout, forged+`,"ſtdout":"real"`, 1),
		"escaped":              strings.Replace(text, stdout, forged+`,"\u0073tdout":"real"`, 1),
		"deep inside":          strings.Replace(text, `"enforced":`, `"enforced":["memory","seccomp"],"Enforced":`, 1),
		"a value said twice":   strings.Replace(text, `"application/json":`, `"application/json":"forged","application/json":`, 1),
		"as a receipt":         strings.Replace(strings.Replace(text, stdout, forged, 1), `{"id"`, "{"+inside+`,"id"`, 1),
		"as an entry":          strings.Replace(strings.Replace(text, stdout, forged, 1), `{"id"`, `{"entry":{},"id"`, 1),
		"as an entry, folded":  strings.Replace(strings.Replace(text, stdout, forged, 1), `{"id"`, `{"Entry":{},"id"`, 1),
		"another entry":        strings.Replace(both, "succeeded", "failed", 1),
		"receipt, and a field": strings.Replace(bare, "{", `{"status":"failed",`, 1),
		"receipt, said twice":  strings.Replace(bare, "{", `{"leaf":"{}",`, 1),
	} {
		if forgery == text || forgery == bare || forgery == both {
			t.Fatalf("%s: nothing was forged", name)
		}
		if err := verify(t, forgery, key); code(err) != sandbox.CodeReceiptInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A process whose output is there is compared with it, whatever else is missing.
func TestForgedOutputOfProcessProvesNothing(t *testing.T) {
	p := &sandbox.Process{ID: "prc_a", Args: []string{"say"}, Status: sandbox.StatusSucceeded, Cause: &sandbox.Cause{Kind: sandbox.CauseExited}, Stdout: "real", HasOutput: true}
	text, _, key := recorded(t, records.ProcessEvent(*p, sandbox.Command{}), func(r *sandbox.Receipt) any { p.Receipt = r; return p })
	if err := verify(t, text, key); err != nil {
		t.Fatal(err)
	}
	text = strings.Replace(text, `,"stdout_truncated":false`, "", 1)
	for _, forged := range []string{
		strings.Replace(text, `"stdout":"real"`, `"stdout":"forged"`, 1),
		strings.Replace(text, `"stderr":""`, `"stderr":"forged"`, 1),
		strings.Replace(text, `"stdout":"real",`, `"stdout_base64":"Zm9yZ2Vk",`, 1),
	} {
		if forged == text {
			t.Fatal("nothing was forged")
		}
		if err := verify(t, forged, key); code(err) != sandbox.CodeReceiptInvalid {
			t.Errorf("%s: %v", forged, err)
		}
	}
}

// A witness's file with no checkpoint in it would agree with every log: it is refused.
func TestWitnessWithoutACheckpointProvesNothing(t *testing.T) {
	l := open(t, Options{})
	if _, err := l.Record(t.Context(), event(1)); err != nil {
		t.Fatal(err)
	}
	key, err := ParseKey(l.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	_, signed := l.Head()
	for content, good := range map[string]bool{signed + endOfNote: true, signed: false, "": false, "nothing": false} {
		name := filepath.Join(t.TempDir(), "witness")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		report, err := Verify(l.o.Dir, Evidence{Key: key, Checkpoints: []string{name}})
		if (err == nil && report.Problem == nil) != good {
			t.Errorf("%q: %+v %v", content, report, err)
		}
	}
}

// A log's checkpoints are read one by one: however many there are, the log opens.
func TestCheckpointsAreReadOneByOne(t *testing.T) {
	name := filepath.Join(t.TempDir(), "checkpoints")
	text := strings.Repeat("name\n1\nroot\n\nsignature\n.\n", 3) + "name\n1\nro"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := eachCheckpoint(name, func(signed []byte) error {
		if n++; string(signed) != "name\n1\nroot\n\nsignature\n" {
			t.Errorf("%q", signed)
		}
		return nil
	})
	if err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(3 << 30); err != nil { // it has no blocks on the disk
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("\n"), int64(len(text))); err != nil {
		t.Fatal(err)
	}
	if err := eachCheckpoint(name, func([]byte) error { return nil }); err == nil {
		t.Error("a line without an end was read")
	}
}
