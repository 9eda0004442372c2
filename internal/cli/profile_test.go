//go:build !lean

package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/audit"
	"pinfold/internal/engine/runs"
	"pinfold/internal/policy"
	"pinfold/internal/profile"
	"pinfold/sandbox"
)

// noting is a Runner that notes what it is asked for.
type noting struct{ specs *[]sandbox.Spec }

func (n noting) Run(_ context.Context, req runs.Request) (*sandbox.Result, error) {
	*n.specs = append(*n.specs, req.Spec)
	zero := 0
	return &sandbox.Result{ID: "run_1", Status: sandbox.StatusSucceeded, ExitCode: &zero, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, Profile: req.Profile}, nil
}

// A profile of a file is held on this host as on a server: what the runner gets is the
// profile, narrowed, and the result names it; what is wider never gets there.
func TestProfileOfAFile(t *testing.T) {
	t.Setenv("PINFOLD_SERVER", "")
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	file := write("tools.yaml", "profiles:\n  calc:\n    language: python\n    limits: {memory_bytes: 64MiB}\n    network: ['GET https://api.test/v1/**']\n  strong:\n    language: python\n    isolation: vm\n  pay:\n    language: python\n    approval: whom?\n")
	rules := write("rules.yaml", "policy: {rules: [{id: all, then: {network: none}}]}\n")
	program, shell := write("a.py", "print(1)"), write("a.sh", "true") // the latter is what the profile says
	var specs []sandbox.Spec
	stronger := false
	var held *policy.Policy
	var asks runs.Approver
	main := func(args ...string) (status int, stdout, stderr string) {
		var text [2]string
		var files [2]*os.File
		for i := range files {
			f, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			files[i] = f
		}
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		specs, stronger, held, asks = nil, false, nil, nil
		status = Main(t.Context(), Deps{
			Args: args, Stdin: null, Stdout: files[0], Stderr: files[1], Version: "test",
			NewRunner: func(context.Context) (Runner, error) { return noting{&specs}, nil },
			Whole: Whole{NewStronger: func(_ context.Context, p *policy.Policy, ask runs.Approver) (Runner, error) {
				stronger, held, asks = true, p, ask
				return noting{&specs}, nil
			}},
		})
		for i, f := range files {
			_, _ = f.Seek(0, io.SeekStart)
			b, err := io.ReadAll(f)
			if err != nil {
				t.Fatal(err)
			}
			text[i] = string(b)
		}
		return status, text[0], text[1]
	}
	status, out, errs := main("run", "--profiles", file, "--profile", "calc", "--memory", "32MiB", "--json", program)
	var r sandbox.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || status != 0 || len(specs) != 1 {
		t.Fatalf("%d %s %s %v", status, out, errs, err)
	}
	if s := specs[0]; s.Limits.MemoryBytes != 32<<20 || len(s.Network.Endpoints) != 1 || s.Isolation != "namespace" || s.Profile != "" || r.Profile == nil || r.Profile.Name != "calc" {
		t.Errorf("%+v %+v", s, r.Profile)
	}
	if status, _, errs = main("run", "--profiles", file, "--profile", "calc", shell); status != 0 || specs[0].Language != "python" {
		t.Errorf("%d %s %+v", status, errs, specs)
	}
	if status, _, errs = main("run", "--profiles", file, "--profile", "strong", program); status != 0 || !stronger {
		t.Errorf("a profile that wants more than every engine has: %d %s", status, errs)
	}
	if status, _, errs = main("run", "--profiles", file, "--profile", "pay", program); status != 0 || asks == nil || !slices.Equal(held.Rules(), []string{"profile:pay"}) {
		t.Errorf("a profile that has a person asked: %d %s", status, errs)
	}
	for name, want := range map[string][]string{"calc": {"all"}, "strong": {"all"}, "pay": {"all", "profile:pay"}} {
		if status, _, errs = main("run", "--profiles", file, "--profile", name, "--policy", rules, program); status != 0 || asks == nil || !slices.Equal(held.Rules(), want) {
			t.Errorf("the profile %s with a policy: %d %s", name, status, errs)
		}
	}
	for want, args := range map[string][]string{
		"--memory: 65MiB is wider than the profile calc, which has 64MiB": {"--profiles", file, "--profile", "calc", "--memory", "65MiB", program},
		"--memory 64MiB": {"--profiles", file, "--profile", "calc", "--memory", "65MiB", program},
		"wider than the profile calc, which has none": {"--profiles", file, "--profile", "calc", "--mount", "/tmp:/x", program},
		"--allow: ":                        {"--profiles", file, "--profile", "calc", "--allow", "api.test", program},
		"has python":                       {"--profiles", file, "--profile", "calc", "--language", "bash", shell},
		"no profile \"kalk\"":              {"--profiles", file, "--profile", "kalk", program},
		"calc, pay, strong":                {"--profiles", file, "--profile", "nothing-like-it", program},
		"no file with profiles":            {"--profile", "calc", program},
		"a server has profiles of its own": {"--server", "http://127.0.0.1:1", "--profiles", file, "--profile", "calc", program},
		"no such key":                      {"--profiles", write("bad.yaml", "profile: {}\n"), "--profile", "calc", program},
	} {
		if status, _, errs := main(append([]string{"run"}, args...)...); status != exitPinfold || !strings.Contains(errs, want) || len(specs) > 0 {
			t.Errorf("%v: %d %q, want %q", args, status, errs, want)
		}
	}
	for _, form := range sandbox.ManifestForms() {
		status, out, errs := main("manifest", "--profiles", file, "--form", form)
		var s sandbox.SignedManifest
		var m sandbox.Manifest
		if err := json.Unmarshal([]byte(out), &s); err != nil || status != 0 {
			t.Errorf("%d %s %v", status, errs, err)
		}
		if err := json.Unmarshal(s.Manifest, &m); err != nil || len(m.Tools) != 3 || m.Profiles[0] != *r.Profile || m.Form != form {
			t.Errorf("%s: %+v %v", form, m, err)
		}
	}
}

// A manifest of a server verifies with its key, and no other.
func TestManifestVerify(t *testing.T) {
	set := profile.Set{}
	if err := set.Add(profile.Entry{Profile: sandbox.Profile{Name: "plots", Language: "python"}}); err != nil {
		t.Fatal(err)
	}
	m, err := profile.Manifest(sandbox.FormPinfold, set.Tools(profile.Anyone, nil, func(string) string { return "" }))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	signer, err := audit.OpenSigner(filepath.Join(dir, "state"), "mine")
	if err != nil {
		t.Fatal(err)
	}
	other, err := audit.OpenSigner(filepath.Join(dir, "other"), "mine")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, sign func(string) (string, error)) string {
		s, err := profile.Seal(m, sign)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good, key := write("good.json", signer.Sign), audit.KeyFile(filepath.Join(dir, "state"))
	for _, k := range []string{key, signer.PublicKey()} {
		if o := serveWith(t, nil, nil, "manifest", "verify", good, "--key", k); o.status != 0 || !strings.Contains(o.stdout, "plots") || !strings.Contains(o.stdout, m.Profiles[0].Digest) || !strings.Contains(o.stdout, "mine") {
			t.Errorf("%+v", o)
		}
	}
	if o := serveWith(t, nil, nil, "manifest", "verify", good, "--key", key, "--json"); o.status != 0 || !strings.HasPrefix(o.stdout, `{"v":1,"form":"pinfold"`) {
		t.Errorf("%+v", o)
	}
	for want, args := range map[string][]string{
		"--key is missing": {good}, "is no public key": {good, "--key", "a+b"}, "is not signed by this key": {write("other.json", other.Sign), "--key", key}, "is not signed\n": {write("unsigned.json", nil), "--key", key},
	} {
		if o := serveWith(t, nil, nil, append([]string{"manifest", "verify"}, args...)...); o.status != exitPinfold || !strings.Contains(o.stderr, want) || !strings.Contains(o.stderr, "hint: ") {
			t.Errorf("%v: %d %q", args, o.status, o.stderr)
		}
	}
}
