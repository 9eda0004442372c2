package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	engineimage "github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/template"
	"pinfold/sandbox"
)

// seen is what an engine said about itself.
type seen struct {
	info system.Info
	aslr string // the kernel's setting
	// nested says that this host is itself in a user namespace, in which runtimes cannot
	// make device files, and show the host's.
	nested bool
	podman bool                        // it is Podman
	image  engineimage.InspectResponse // the configured one; zero where it is not asked for
}

// machines are Docker's names of architectures; Podman's are Go's.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// look asks the engine, or says why it cannot be used.
func (d *Driver) look(ctx context.Context, t image.Template) (seen, *sandbox.Error) {
	if e := usableHere(); e != nil {
		return seen{}, e
	}
	if d.o.Image == "" {
		e := unavailable("no image is set for the docker driver's machines")
		return seen{}, e.WithAdvice(sandbox.Advise("name one that the engine has in %s", sandbox.Config("drivers.docker.image")))
	}
	if len(d.o.StateDir) > maxStateDir || !filepath.IsAbs(d.o.StateDir) {
		e := unavailable(fmt.Sprintf("the docker driver's directory %s is no absolute path of at most %d bytes", sandbox.SafeText(d.o.StateDir, 200), maxStateDir))
		return seen{}, e.WithAdvice(sandbox.Advise("name a shorter one in %s", sandbox.Config("state")))
	}
	engine, err := d.engine()
	if err != nil {
		return seen{}, sandbox.AsError(err)
	}
	if where := engine.DaemonHost(); !strings.HasPrefix(where, "unix://") {
		e := unavailable("the Docker engine at " + sandbox.SafeText(where, 200) + " is not on this host")
		return seen{}, e.WithHint("unset DOCKER_HOST, and run Pinfold on the engine's host")
	}
	_, err = engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil {
		return seen{}, noEngine(engine.DaemonHost(), err)
	}
	info, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return seen{}, noEngine(engine.DaemonHost(), err)
	}
	s := seen{info: info.Info}
	if e := s.unsuited(d.o.Runtime); e != nil {
		return seen{}, e
	}
	if s.podman, err = isPodman(ctx, engine); err != nil {
		return seen{}, noEngine(engine.DaemonHost(), err)
	}
	if len(t.Layers.Dirs) == 0 {
		found, e := d.lookAtImage(ctx, engine)
		if e != nil {
			return seen{}, e
		}
		s.image = found
	}
	text, _ := os.ReadFile("/proc/sys/kernel/randomize_va_space") // what is not known is no
	s.aslr = strings.TrimSpace(string(text))
	text, _ = os.ReadFile("/proc/self/uid_map")
	s.nested = !slices.Equal(strings.Fields(string(text)), []string{"0", "0", "4294967295"})
	return s, nil
}

// lookAtImage describes the configured image, or says why it cannot be used.
func (d *Driver) lookAtImage(ctx context.Context, engine *client.Client) (engineimage.InspectResponse, *sandbox.Error) {
	found, err := engine.ImageInspect(ctx, d.o.Image)
	if err != nil {
		return found.InspectResponse, noImage(d.o.Image, err)
	}
	if found.Config != nil && len(found.Config.Volumes) > 0 {
		e := unavailable("the image " + sandbox.SafeText(d.o.Image, 200) + " declares volumes, which are disk without a limit")
		return found.InspectResponse, e.WithHint("take an image without VOLUME")
	}
	return found.InspectResponse, nil
}

// shown is what machines of the template host show: the programs of the configured image. It
// looks into the engine's own directories, where the engine says which they are, and once
// for each image. nil: they are taken to be where the host's are.
func (d *Driver) shown(host image.Template, s seen) *image.Template {
	id := Name + ":" + s.image.ID
	if s.image.GraphDriver == nil || len(d.o.Programs) == 0 || host.ID == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.image == nil || d.image.ID != id {
		data := s.image.GraphDriver.Data
		dirs := []string{data["UpperDir"]}
		if lower := data["LowerDir"]; lower != "" {
			dirs = append(dirs, strings.Split(lower, ":")...)
		}
		root, done, err := template.Directories(dirs)
		if err != nil {
			return nil // as the comment says
		}
		defer done()
		found := host.Elsewhere(root, id, d.o.Programs)
		d.image = &found
	}
	return d.image
}

func unavailable(message string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: message}
}

func noImage(image string, err error) *sandbox.Error {
	e := unavailable("the Docker engine has no image " + sandbox.SafeText(image, 200))
	if !cerrdefs.IsNotFound(err) {
		e.Message = "cannot look at the image " + sandbox.SafeText(image, 200) + ": " + sandbox.SafeText(err.Error(), 300)
	}
	e.Err = err
	return e.WithAdvice(sandbox.Advice{sandbox.HostCommand("sudo docker pull " + sandbox.SafeText(image, 200))})
}

// unsuited says why an engine cannot be used.
func (s seen) unsuited(runtimeName string) *sandbox.Error {
	option := func(name string) bool {
		return slices.ContainsFunc(s.info.SecurityOptions, func(o string) bool { return o == "name="+name || strings.HasPrefix(o, "name="+name+",") })
	}
	_, known := s.info.Runtimes[runtimeName]
	switch {
	case s.info.OSType != "linux" || s.info.Architecture != machines[runtime.GOARCH] && s.info.Architecture != runtime.GOARCH:
		return unavailable(fmt.Sprintf("the Docker engine makes containers for %s on %s, and this is Linux on %s",
			sandbox.SafeText(s.info.OSType, 40), sandbox.SafeText(s.info.Architecture, 40), machines[runtime.GOARCH])).
			WithHint("run Pinfold on the engine's host")
	case option("rootless") || option("userns"):
		return unavailable("the Docker engine is rootless or remaps users, which this driver cannot serve yet").
			WithHint("start the engine as root, without --userns-remap")
	case runtimeName != "" && !known:
		return unavailable("the Docker engine has no runtime " + sandbox.SafeText(runtimeName, 60)).
			WithHint("name it in /etc/docker/daemon.json, or take another one in drivers.docker.runtime")
	}
	return nil
}

// findings says what machines enforce.
func (s seen) findings() []driver.Finding {
	found := make([]driver.Finding, 0, len(always)+len(never)+11)
	for _, f := range always {
		found = append(found, driver.Finding{Feature: f, Answer: driver.Yes, Because: "part of every container"})
	}
	for _, n := range never {
		found = append(found, driver.Finding{Feature: n.feature, Answer: driver.No, Because: n.because, Fix: sandbox.Set("driver", "native")})
	}
	const noController, boot = "the engine says that the host cannot", "boot with the cgroup controller for it"
	layered := slices.Contains([]string{"overlay2", "overlayfs", "fuse-overlayfs"}, s.info.Driver)
	return append(found,
		driver.Finding{Feature: sandbox.FeatureNetwork, Answer: driver.Yes, Because: "the agent listens in the container, which has loopback alone, and hands each connection to the host"},
		finding(sandbox.FeatureMemory, s.info.MemoryLimit, "the engine limits it", noController, boot),
		finding(sandbox.FeatureSwap, s.info.SwapLimit, "the engine forbids it", noController, "boot with swapaccount=1"),
		finding(sandbox.FeatureCPUs, s.info.CPUCfsQuota, "the engine limits them", noController, boot),
		finding(sandbox.FeatureProcesses, s.info.PidsLimit, "the engine limits them", noController, boot),
		finding(sandbox.FeatureSeccomp, s.filters(), "our list is the engine's profile, and with its conditions the agent's filter; calls that it refuses are not named in results",
			"the engine has no seccomp", "take an engine that was built with seccomp, on a kernel with CONFIG_SECCOMP_FILTER"),
		finding(sandbox.FeatureFilesOwn, layered, "each container has an overlay of the image",
			"the engine's storage driver is "+sandbox.SafeText(s.info.Driver, 40), "start the engine with --storage-driver=overlay2"),
		finding(sandbox.FeatureCgroupNS, !s.podman, "part of every container", "Podman has no word for it in Docker's API: programs read the group's name in /proc/self/cgroup", ""),
		finding(sandbox.FeatureDevicesOwn, !s.nested, "the runtime makes them for each container",
			"this host is in a user namespace, where runtimes show the host's", "run the engine outside any container"),
		finding(sandbox.FeatureASLR, s.aslr == "2", "the kernel gives every program that is started a layout of its own",
			"kernel.randomize_va_space is not 2", "sudo sysctl -w kernel.randomize_va_space=2"),
		driver.Finding{Feature: sandbox.FeatureIO, Answer: driver.No, Because: "the sandbox's disk is memory, and reading the image is not throttled"},
	)
}

// filters says whether the engine puts seccomp profiles into force.
func (s seen) filters() bool {
	return slices.ContainsFunc(s.info.SecurityOptions, func(o string) bool { return strings.HasPrefix(o, "name=seccomp") })
}

func finding(feature string, yes bool, because, otherwise, fix string) driver.Finding {
	if yes {
		return driver.Finding{Feature: feature, Answer: driver.Yes, Because: because}
	}
	return driver.Finding{Feature: feature, Answer: driver.No, Because: otherwise, Fix: sandbox.Text(fix)}
}

// always lists what every container has that we ask for: making it fails otherwise. The
// limits that stand here are the agent's, or the disk's own.
var always = []string{
	sandbox.FeatureNetworkNone, sandbox.FeatureMountNS, sandbox.FeaturePIDNS, sandbox.FeatureNetNS, sandbox.FeatureIPCNS,
	sandbox.FeatureUTSNS, sandbox.FeatureNoNewPrivs, sandbox.FeatureCapabilities,
	sandbox.FeatureReadOnlyRoot, sandbox.FeatureAgentSealed,
	sandbox.FeatureWallTime, sandbox.FeatureCPUTime, sandbox.FeatureDisk, sandbox.FeatureInodes,
	sandbox.FeatureOutput, sandbox.FeatureOpenFiles, sandbox.FeatureFileSize,
}

// never lists what no container has that the engine makes for us.
var never = []struct{ feature, because string }{
	{sandbox.FeatureUserNS, "containers have the host's user namespace: its user 1000 is the sandbox's"},
	{sandbox.FeatureUIDBlock, "every container's user is the host's user 1000"},
	{sandbox.FeatureTimeNS, "the engine makes no time namespaces"},
	{sandbox.FeatureLandlock, "what a container shows is the image and the sandbox's own, and no second layer guards it"},
}

// isPodman says whether an engine is Podman, which speaks Docker's API and reads a seccomp
// profile from a file.
func isPodman(ctx context.Context, engine *client.Client) (bool, error) {
	v, err := engine.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(v.Components, func(c system.ComponentVersion) bool { return c.Name == "Podman Engine" }), nil
}
