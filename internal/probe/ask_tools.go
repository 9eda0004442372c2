//go:build linux

package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const goarch = runtime.GOARCH

// How long something outside of this process may take to answer.
const (
	toolTime   = 2 * time.Second
	dockerTime = time.Second
)

// maxAnswer bounds what another program or a daemon may say.
const maxAnswer = 64 << 10

func lookPath(program string) (string, error) { return exec.LookPath(program) }

// runBounded runs a program of the host and returns its output.
func runBounded(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = 100 * time.Millisecond
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	text, readErr := io.ReadAll(io.LimitReader(out, maxAnswer))
	if err := errors.Join(readErr, cmd.Wait()); err != nil {
		return "", err
	}
	return strings.TrimSpace(string(text)), nil
}

// subordinateIDs looks for a range in /etc/subuid and /etc/subgid and for the
// helpers that apply it; see subuid(5) and newuidmap(1).
func subordinateIDs(_ context.Context, h *host) reply {
	if h.uid == 0 {
		return reply{answer: Yes, probed: "root maps any id without them"}
	}
	install := `sudo apt-get install uidmap && sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "$USER"`
	var probed []string
	answer := Yes
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		text, err := h.read(file)
		if err != nil || !hasRange(text, h.user, h.uid) {
			answer = No
			probed = append(probed, "no range for this user in "+file)
		}
	}
	for _, helper := range []string{"newuidmap", "newgidmap"} {
		path, err := h.lookup(helper)
		if err != nil {
			answer = No
			probed = append(probed, helper+" is not installed")
			continue
		}
		info, err := os.Stat(path)
		if err == nil && info.Mode()&os.ModeSetuid == 0 {
			probed = append(probed, helper+" is not set-user-id (it may have file capabilities instead)")
		}
	}
	if len(probed) == 0 {
		probed = append(probed, "/etc/subuid, /etc/subgid and set-user-id helpers are there")
	}
	return reply{answer: answer, probed: strings.Join(probed, "; "), fix: install}
}

// hasRange finds a line "user:first:count" with a count above zero.
func hasRange(text, user string, uid int) bool {
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.TrimSpace(line), ":")
		if len(parts) != 3 || (parts[0] != strconv.Itoa(uid) && (user == "" || parts[0] != user)) {
			continue
		}
		if n, err := strconv.ParseUint(parts[2], 10, 32); err == nil && n > 0 {
			return true
		}
	}
	return false
}

// docker asks the daemon's socket, which is what a driver would use; the
// client alone runs nothing.
func docker(ctx context.Context, h *host) reply {
	socket := filepath.Join(h.root, "/var/run/docker.sock")
	if env, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://"); ok {
		socket = env
	}
	client := "the client is not installed"
	if path, err := h.lookup("docker"); err == nil {
		client = "the client is " + path
	}
	status, err := dockerPing(ctx, socket)
	if err != nil {
		return reply{answer: No, probed: socket + ": " + why(err) + "; " + client}
	}
	return reply{answer: yesIf(strings.Contains(status, " 200 ")), probed: socket + " answered " + strconv.Quote(status) + "; " + client}
}

// dockerPing speaks the few words of HTTP that GET /_ping takes, so that the
// whole of net/http stays out of the program.
func dockerPing(ctx context.Context, socket string) (status string, err error) {
	ctx, cancel := context.WithTimeout(ctx, dockerTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // nothing is left to say
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"); err != nil {
		return "", err
	}
	status, err = bufio.NewReader(io.LimitReader(conn, 256)).ReadString('\n')
	return strings.TrimSpace(status), err
}

// qemu looks for what the driver of that name takes by itself. Whether a machine boots is
// the driver's to say: that takes seconds.
func qemu(ctx context.Context, h *host) reply {
	const install = "sudo apt-get install --no-install-recommends "
	path, err := h.lookup("qemu-system-x86_64")
	if err != nil {
		return reply{answer: No, probed: "no qemu-system-x86_64 in PATH", fix: install + "qemu-system-x86 linux-image-cloud-amd64"}
	}
	text, err := h.run(ctx, path, "--version")
	if err != nil {
		return reply{answer: Unknown, probed: path + " --version: " + why(err)}
	}
	version, _, _ := strings.Cut(text, "\n")
	kernels, err := filepath.Glob(filepath.Join(h.root, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) == 0 {
		return reply{answer: No, probed: version + "; no /boot/vmlinuz-*", fix: install + "linux-image-cloud-amd64"}
	}
	for _, k := range kernels {
		release := strings.TrimPrefix(filepath.Base(k), "vmlinuz-")
		if _, err := os.Stat(filepath.Join(h.root, "lib", "modules", release)); err == nil {
			return reply{answer: Yes, probed: version + "; kernel " + release}
		}
	}
	return reply{answer: No, probed: version + "; none of the kernels in /boot has its modules in /lib/modules", fix: install + "linux-image-cloud-amd64"}
}

func gvisor(ctx context.Context, h *host) reply {
	path, err := h.lookup("runsc")
	if err != nil {
		return reply{answer: No, probed: "no runsc in PATH"}
	}
	text, err := h.run(ctx, path, "--version")
	if err != nil {
		return reply{answer: Unknown, probed: path + " --version: " + why(err)}
	}
	line, _, _ := strings.Cut(text, "\n")
	return reply{answer: Yes, probed: path + ": " + line}
}

// outsideContainer looks for the marks that container managers leave.
func outsideContainer(_ context.Context, h *host) reply {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv", "/run/systemd/container"} {
		if _, err := os.Lstat(filepath.Join(h.root, mark)); err == nil {
			return reply{answer: No, probed: mark + " is there"}
		}
	}
	if env, err := h.read("/proc/1/environ"); err == nil {
		for v := range strings.SplitSeq(env, "\x00") {
			if name, ok := strings.CutPrefix(v, "container="); ok {
				return reply{answer: No, probed: fmt.Sprintf("process 1 has container=%s", name)}
			}
		}
	}
	return reply{answer: Yes, probed: "none of the marks of Docker, Podman and systemd is there"}
}
