package container

import (
	"os"
	"strings"
	"testing"
)

// What users are told to install is what the tests have tried.
func TestHowToGetRunsc(t *testing.T) {
	tool, err := os.ReadFile("../../scripts/tool")
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(HowToGetRunsc, "/runsc@")
	if version == "" || !strings.Contains(string(tool), "runsc) module=gvisor.dev/gvisor/runsc version="+version+" ") {
		t.Errorf("scripts/tool builds another version than %q", version)
	}
}
