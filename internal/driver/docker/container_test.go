package docker

import (
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
	"pinfold/internal/driver"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
)

func somePlan(t *testing.T, findings []driver.Finding) driver.Plan {
	t.Helper()
	p, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), imagetest.Host(t), driver.Report{Driver: Name, Level: sandbox.LevelContainer, Findings: findings}, "m1")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The container that is asked for has no rights, no network, and nothing of the host's but
// the machine's directory.
func TestContainer(t *testing.T) {
	c := Options{Image: "img", StateDir: "/state"}.options(somePlan(t, nil), "/state/m1", "{}", nil)
	h := c.HostConfig
	for what, is := range map[string]bool{
		"unprivileged":      !h.Privileged && len(h.CapAdd) == 0 && slices.Equal(h.CapDrop, []string{"ALL"}) && len(h.Devices) == 0,
		"a user":            c.Config.User == "1000:1000" && len(h.GroupAdd) == 0,
		"no network":        h.NetworkMode == "none" && c.Config.NetworkDisabled && len(h.PortBindings) == 0,
		"own namespaces":    h.PidMode == "" && h.IpcMode == "private" && h.UTSMode == "" && h.CgroupnsMode == "private",
		"a read-only root":  h.ReadonlyRootfs && len(h.Tmpfs) == 0 && len(h.Binds) == 0 && len(c.Config.Volumes) == 0,
		"no new privileges": slices.Contains(h.SecurityOpt, "no-new-privileges") && slices.Contains(h.SecurityOpt, "seccomp={}"),
		"memory, no swap":   h.Memory == sandbox.Limits{}.WithDefaults().MemoryBytes && h.MemorySwap == h.Memory,
		"processes":         h.PidsLimit != nil && *h.PidsLimit > sandbox.Limits{}.WithDefaults().Processes,
		"processor time":    h.CPUQuota == 100_000 && h.CPUPeriod == 100_000,
		"no health check":   slices.Equal(c.Config.Healthcheck.Test, []string{"NONE"}),
		"no environment":    slices.Equal(c.Config.Env, []string{"GOMAXPROCS=1"}),
		"no log":            h.LogConfig.Type == "none",
		"one life":          h.RestartPolicy.Name == "no" && !h.AutoRemove,
	} {
		if !is {
			t.Errorf("it is not so: %s: %+v %+v", what, c.Config, h)
		}
	}
	var writable []string
	for _, m := range h.Mounts {
		if m.Type != mount.TypeBind || !strings.HasPrefix(m.Source, "/state/m1/") {
			t.Errorf("it shows %+v", m)
		}
		if !m.ReadOnly {
			writable = append(writable, m.Target)
		}
	}
	if want := []string{"/home/user", "/tmp", "/var/tmp", "/dev/shm"}; !slices.Equal(writable, want) {
		t.Errorf("%q can be written to, not %q", writable, want)
	}
}

// One with doors has files of its own that say where the names are, which it cannot write to,
// and may listen at low ports; it has no network more than without.
func TestContainerWithDoors(t *testing.T) {
	plan := somePlan(t, nil)
	without := Options{Image: "img", StateDir: "/state"}.options(plan, "/state/m1", "{}", nil)
	plan.Doors = []driver.Door{{Host: "a.test", At: netip.MustParseAddrPort("127.66.0.2:443")}}
	plan.Authority = []byte("certificate")
	with := Options{Image: "img", StateDir: "/state"}.options(plan, "/state/m1", "{}", nil)
	var more []string
	for _, m := range with.HostConfig.Mounts {
		if slices.ContainsFunc(without.HostConfig.Mounts, func(o mount.Mount) bool { return o.Target == m.Target }) {
			continue
		}
		more = append(more, m.Target)
		if !m.ReadOnly || m.Source != "/state/m1/shown"+m.Target {
			t.Errorf("%+v", m)
		}
	}
	if want := []string{"/etc/hosts", "/etc/resolv.conf", "/etc/pinfold/authority.pem", "/etc/pinfold/trust.pem", "/etc/pinfold/trust.p12"}; !slices.Equal(more, want) {
		t.Errorf("it shows %q, not %q", more, want)
	}
	if h := with.HostConfig; h.NetworkMode != "none" || !with.Config.NetworkDisabled || len(h.CapAdd) > 0 || len(h.Sysctls) != 1 || without.HostConfig.Sysctls != nil {
		t.Errorf("%+v", h)
	}
	for _, f := range ownFiles(plan) {
		if f.Path == "/etc/hosts" && !strings.Contains(string(f.Content), "127.66.0.2\ta.test\n") || f.Path == "/etc/resolv.conf" && !strings.Contains(string(f.Content), "nameserver 127.66.0.1\n") {
			t.Errorf("%s: %s", f.Path, f.Content)
		}
	}
}

func goodEngine() seen {
	return seen{aslr: "2", info: system.Info{
		OSType: "linux", Architecture: machines[runtime.GOARCH], Driver: "overlay2", MemoryLimit: true, SwapLimit: true, CPUCfsQuota: true, PidsLimit: true,
		SecurityOptions: []string{"name=seccomp,profile=default"}, Runtimes: map[string]system.RuntimeWithStatus{"runc": {}},
	}}
}

// The report answers for every feature, and says what an engine lacks.
func TestFindings(t *testing.T) {
	bad := goodEngine()
	bad.info.Driver, bad.info.SwapLimit, bad.info.SecurityOptions, bad.aslr, bad.nested = "vfs", false, nil, "1", true
	for _, c := range []struct {
		engine seen
		lacks  []string
	}{
		{goodEngine(), nil},
		{bad, []string{sandbox.FeatureSwap, sandbox.FeatureSeccomp, sandbox.FeatureFilesOwn, sandbox.FeatureDevicesOwn, sandbox.FeatureASLR}},
	} {
		plan := somePlan(t, c.engine.findings())
		lacks := append([]string{sandbox.FeatureUserNS, sandbox.FeatureUIDBlock, sandbox.FeatureTimeNS, sandbox.FeatureLandlock, sandbox.FeatureIO}, c.lacks...)
		for _, f := range sandbox.Features() {
			if plan.Enforces(f.Name) == slices.Contains(lacks, f.Name) {
				t.Errorf("%s is enforced: %v", f.Name, plan.Enforces(f.Name))
			}
		}
		if n, all := len(c.engine.findings()), len(sandbox.Features()); n != all {
			t.Errorf("%d findings about %d features", n, all)
		}
	}
}

// Engines that cannot make our machines are refused, with a hint.
func TestUnsuitedEngines(t *testing.T) {
	for what, change := range map[string]func(*seen){
		"another system":  func(s *seen) { s.info.OSType = "windows" },
		"another machine": func(s *seen) { s.info.Architecture = "s390x" },
		"rootless":        func(s *seen) { s.info.SecurityOptions = append(s.info.SecurityOptions, "name=rootless") },
		"remapped users":  func(s *seen) { s.info.SecurityOptions = append(s.info.SecurityOptions, "name=userns") },
	} {
		s := goodEngine()
		change(&s)
		if e := s.unsuited(""); e == nil || e.Code != sandbox.CodeDriverUnavailable || e.Hint == "" {
			t.Errorf("%s: %+v", what, e)
		}
	}
	s := goodEngine()
	if e := s.unsuited("runc"); e != nil {
		t.Errorf("a good engine is refused: %v", e)
	}
	if e := s.unsuited("runsc"); e == nil || !strings.Contains(e.Message, "runsc") {
		t.Errorf("a runtime that the engine has not: %v", e)
	}
}

// Where no engine is, or it cannot be ours, the report says so and what would help.
func TestNoEngine(t *testing.T) {
	for what, o := range map[string]Options{
		"no image":        {},
		"nobody":          {Image: "x", Engine: "unix://" + t.TempDir() + "/sock"},
		"another machine": {Image: "x", Engine: "tcp://192.0.2.1:2375"},
		"nonsense":        {Image: "x", Engine: "::"},
		"a long state":    {Image: "x", StateDir: "/" + strings.Repeat("x", 100)},
	} {
		if o.StateDir == "" {
			o.StateDir = "/state"
		}
		r, err := New(o).Probe(t.Context(), imagetest.Host(t))
		if err != nil || r.Blocked == nil || r.Blocked.Code != sandbox.CodeDriverUnavailable || r.Blocked.Hint == "" || len(r.Findings) > 0 {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
}
