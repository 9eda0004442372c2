package cli

import (
	"os"
	"path/filepath"
	"testing"

	"pinfold/sandbox"
)

// A command for the host stands on a line of its own, whatever else there is to say.
func TestHintLines(t *testing.T) {
	command := sandbox.HostCommand(`sudo env A=b install it`)
	for name, c := range map[string]struct {
		advice sandbox.Advice
		want   string
	}{
		"a command alone":         {sandbox.Advise("%s", command), "pinfold: x\nhint: sudo env A=b install it\n"},
		"a command and more":      {sandbox.Advise("%s; a server has it named in %s", command, sandbox.Config("drivers.x")), "pinfold: x\nhint: sudo env A=b install it\n      a server has it named in drivers.x in the server's configuration\n"},
		"a sentence":              {sandbox.Advise("leave it out"), "pinfold: x\nhint: leave it out\n"},
		"a sentence with command": {sandbox.Advise("wait, or %s", command), "pinfold: x\nhint: wait, or sudo env A=b install it\n"},
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		a := &app{Deps: Deps{Stderr: file}}
		a.fail((&sandbox.Error{Code: sandbox.CodeInternal, Message: "x"}).WithAdvice(c.advice))
		if got, err := os.ReadFile(file.Name()); err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A network that no driver here can give ends in one way, whether a driver is named or a
// level of isolation.
func TestNetworkThatNoneGives(t *testing.T) {
	for _, code := range []string{sandbox.CodeNetworkUnsupported, sandbox.CodeRequirementUnmet} {
		if got := errorStatus(&sandbox.Error{Code: code}); got != exitRequirement {
			t.Errorf("%s: %d", code, got)
		}
	}
}
