//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// leaks puts a key wherever output comes from: both streams, a value, a traceback, an
// artifact and its name.
const leaks = `
import sys
key = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"
print("the key:", key)
print("the key:", key, file=sys.stderr)
open(key + ".txt", "w").write(key)
open("fine.txt", "w").write("x" + key)
raise ModuleNotFoundError("No module named '%s'" % key, name=key)
`

// judgesKeys withholds what has a key in it, of everything that it is given, and cannot write to
// any of that.
const judgesKeys = `
import json, os, sys
d = json.load(open("output.json"))
for path in ["output.json"] + ["artifacts/" + a["path"] for a in d["artifacts"]]:
    try:
        open(path, "r+")
        sys.exit("could write to " + path)
    except PermissionError:
        pass
if len(d["artifacts"]) < 1 or d["status"] != "failed":
    sys.exit("not what there was")
if "ghp_" in sys.stdin.read():
    sys.exit(3)
`

// What a program leaks in a real sandbox is in no form of what the command line says where
// it is withheld, by a check or by a validator in a sandbox of its own; and all over where
// it is not.
func TestLeaksAreWithheld(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	file := filepath.Join(t.TempDir(), "judge.py")
	if err := os.WriteFile(file, []byte(judgesKeys), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"control": {"--gate", "keys=flag"}, "keys": {"--gate", "keys=withhold"}, "validator": {"--gate-validator", file},
	} {
		t.Run(name, func(t *testing.T) {
			r, out := run(t, bin, "python", leaks, append(args, "-a", "*.txt")...)
			all, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			said := string(all) + fmt.Sprintf("%+v", out)
			if found := strings.Contains(said, "ghp_abc"); found != (name == "control") {
				t.Errorf("%s", said)
			}
			if r.Status != sandbox.StatusFailed || r.Gate == nil || (r.Gate.Outcome == sandbox.GateWithhold) == (name == "control") {
				t.Errorf("%s, %+v", r.Status, r.Gate)
			}
			if last := r.Gate.Checks[len(r.Gate.Checks)-1]; name == "validator" && (len(last.Findings) != 1 || last.Findings[0].What != "exit status 3") {
				t.Errorf("%+v", last)
			}
		})
	}
}

// A validator that never ends, or eats memory, withholds what it judges, and costs what its
// own limits say.
func TestHostileValidators(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	for cause, validator := range map[string]sandbox.GateValidator{
		"wall_time": {Code: "import time; time.sleep(100)", Limits: sandbox.Limits{WallTimeMS: 2000}},
		"memory":    {Code: "x = bytearray(10**9)\nfor i in range(0, 10**9, 4096): x[i] = 1"},
	} {
		validator.Language, validator.Action = "python", sandbox.GateFlag
		spec, err := json.Marshal(sandbox.Gate{Validators: []sandbox.GateValidator{validator}})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "gate.json")
		if err := os.WriteFile(file, spec, 0o600); err != nil {
			t.Fatal(err)
		}
		r, _ := run(t, bin, "python", "print(42)", "--gate", file)
		if r.Stdout != "" || r.Status != sandbox.StatusSucceeded || r.Gate.Outcome != sandbox.GateWithhold || !strings.Contains(r.Gate.Checks[0].Findings[0].What, cause) {
			t.Errorf("%s: %q, %+v", cause, r.Stdout, r.Gate)
		}
	}
}
