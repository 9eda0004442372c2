package gvisor

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// The bundle asks for nothing that a sandbox should not have.
func TestConfig(t *testing.T) {
	text, err := config(driver.Plan{ID: "x", Hostname: "sandbox", Limits: sandbox.Limits{Processes: 10}, User: image.User{UID: 1000, GID: 1001, Home: "/home/user"}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	process, _ := got["process"].(map[string]any)
	limits := map[string]float64{}
	for _, l := range process["rlimits"].([]any) {
		r := l.(map[string]any)
		if limits[r["type"].(string)] = r["hard"].(float64); r["hard"] != r["soft"] {
			t.Errorf("a program may raise %v", r)
		}
	}
	delete(process, "rlimits")
	mounts := got["mounts"].([]any)
	delete(got, "mounts")
	capabilities := process["capabilities"].(map[string]any)
	delete(process, "capabilities")
	for set, all := range capabilities {
		for _, c := range all.([]any) {
			if !slices.Contains(agentCapabilities, c.(string)) || !slices.Contains([]string{"bounding", "effective", "permitted"}, set) {
				t.Errorf("the agent has %v in %s", c, set)
			}
		}
	}
	want := map[string]any{
		"ociVersion": "1.0.2", "hostname": "sandbox", "root": map[string]any{"path": "/bundle/rootfs", "readonly": true},
		"process": map[string]any{
			"user": map[string]any{"uid": 0.0, "gid": 0.0}, "args": []any{"pinfold-agent", "announce"}, "cwd": "/",
			"env": []any{"GOMAXPROCS=1", "GODEBUG=memprofilerate=0"}, "noNewPrivileges": true,
		},
		"linux": map[string]any{"namespaces": []any{map[string]any{"type": "pid"}, map[string]any{"type": "ipc"}, map[string]any{"type": "uts"}, map[string]any{"type": "mount"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config.json (-want +got):\n%s", diff)
	}
	if limits["RLIMIT_NPROC"] != 10+wire.MaxTasks+spareProcesses || limits["RLIMIT_CORE"] != 0 {
		t.Errorf("limits %v", limits)
	}
	var writable []string
	for _, m := range mounts {
		m := m.(map[string]any)
		var options []string
		for _, o := range m["options"].([]any) {
			options = append(options, o.(string))
		}
		if !slices.Contains(options, "nosuid") {
			t.Errorf("a mount without nosuid: %v", m)
		}
		if m["type"] == "bind" && !slices.Contains(options, "ro") {
			writable = append(writable, m["source"].(string))
		}
	}
	for _, source := range writable {
		if !strings.HasPrefix(source, diskDir+"/") {
			t.Errorf("%s can be written to, and is not on the disk", source)
		}
	}
	if len(writable) != 4 {
		t.Errorf("%q can be written to", writable)
	}
}

// No flag gives the sandbox something of the host's, or asks runsc for less than it does by
// itself.
func TestArguments(t *testing.T) {
	args := arguments(3, 4)
	for _, want := range []string{"--network=none", "--host-uds=none", "--host-fifo=none", "--overlay2=none", "--platform=systrap", "--allow-flag-override=false", "--allow-suid=false"} {
		if !slices.Contains(args, want) {
			t.Errorf("%q are without %s", args, want)
		}
	}
	for _, a := range args {
		for _, bad := range []string{"TESTONLY", "debug", "profile", "strace", "rootless", "net-raw", "nvproxy"} {
			if strings.Contains(a, bad) {
				t.Errorf("%s has no place here", a)
			}
		}
	}
}
