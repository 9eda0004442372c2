//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// hostMounts is what is seen of the host's mounts where sandboxes are shown something. It is
// taken to be so for a second. It is safe for concurrent use.
type hostMounts struct {
	template image.Template

	mu     sync.Mutex
	looked time.Time
	last   mountState
}

// mountState is one look at the host.
type mountState struct {
	identity string   // changes with what the views are of, and with what is mounted below them
	nested   []string // where something is mounted below them, what is inside another behind it
	file     string   // one of nested that is no directory, or ""
}

// look returns what is seen now, or was less than a second ago.
func (s *hostMounts) look() mountState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.looked) > time.Second {
		mounts, _ := os.ReadFile("/proc/self/mountinfo") // without it, directories that were replaced are noticed all the same
		s.looked, s.last = now, readMounts(s.template, string(mounts))
	}
	return s.last
}

// readMounts goes by a table of mounts, see proc_pid_mountinfo(5).
func readMounts(t image.Template, mounts string) mountState {
	var s mountState
	var b strings.Builder
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		place := unescape.Replace(f[4])
		for _, shown := range t.Binds {
			if shown.Dir && strings.HasPrefix(place, shown.Source+"/") && onTop(place, f[0]) {
				b.WriteString(f[0] + ":" + place + " ")
				s.nested = append(s.nested, place)
				if !isDir(place) {
					s.file = place
				}
			}
		}
	}
	for _, shown := range t.Binds {
		var st unix.Stat_t
		if !shown.Dir {
			continue
		}
		if unix.Stat(shown.Source, &st) == nil {
			fmt.Fprintf(&b, "%d:%d ", st.Dev, st.Ino)
		} else {
			b.WriteString("none ")
		}
	}
	s.identity = b.String()
	return s
}

// unescape undoes what mountinfo does to white space.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// onTop says whether a path leads to the mount of that number, and not to one that
// covers it. Where that cannot be told it does.
func onTop(place, mount string) bool {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, place, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st) != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return true
	}
	return fmt.Sprint(st.Mnt_id) == mount
}

// filesFinding says whether sandboxes see the host's files through layers of their
// own.
func (s *shown) filesFinding() driver.Finding {
	h, f := s.host, driver.Finding{Feature: sandbox.FeatureFilesOwn, Answer: driver.No}
	state := s.mounts.look()
	switch {
	case h.features.overlay != nil:
		f.Because, f.Fix = h.features.overlay.Error(), sandbox.HostCommand("sudo modprobe overlay")
	case state.file != "":
		f.Because = fmt.Sprintf("a single file is mounted at %s, of which the kernel makes no overlay", sandbox.SafeText(state.file, 200))
		f.Fix = sandbox.HostCommand("sudo umount " + shellQuote(state.file))
	case len(state.nested) > 0 && !h.ids.root:
		f.Because = fmt.Sprintf("something is mounted at %s, and the kernel lets only root make an overlay of what is below", sandbox.SafeText(state.nested[0], 200))
		f.Fix = rootShell
	default:
		f.Answer, f.Because = driver.Yes, "an overlay of its own for each sandbox"
	}
	return f
}

// devicesFinding says whether sandboxes have device files of their own.
func (h *host) devicesFinding() driver.Finding {
	f := driver.Finding{Feature: sandbox.FeatureDevicesOwn, Answer: driver.Yes, Because: "on the sandbox's own file system"}
	if err := h.features.devices; err != nil {
		f.Answer, f.Because = driver.No, "the host's are shown, read-only: "+err.Error()
		if !h.ids.root {
			f.Fix = rootShell
		}
	}
	return f
}

// overlays says why there are no overlays here, nil when there are.
func overlays() error {
	if os.Geteuid() == 0 {
		fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC) // has the kernel load its module
		if err == nil {
			_ = unix.Close(fs)
			return nil
		}
		if !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("the kernel has no overlay file system: %w", errors.ErrUnsupported)
		}
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if strings.Contains(string(known), "\toverlay\n") || overlayModule() {
		return nil
	}
	return fmt.Errorf("the kernel has no overlay file system: %w", errors.ErrUnsupported)
}

// overlayModule says whether the kernel can load its module, when somebody mounts one.
func overlayModule() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	built, err := os.ReadFile("/lib/modules/" + unix.ByteSliceToString(u.Release[:]) + "/modules.dep")
	return err == nil && strings.Contains(string(built), "/overlay.ko")
}
