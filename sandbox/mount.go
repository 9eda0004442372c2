package sandbox

import (
	"fmt"
	"path"
	"strings"
)

// Mount shows a host directory or file inside the sandbox. Only the person who
// operates the host may ask for one (the command line, the Go library).
type Mount struct {
	Host     string
	Guest    string // absolute
	Writable bool
}

// What a mount may not cover, because nothing runs without it. Programs fail then as if
// the host lacked their interpreters, or what Pinfold writes goes to the host's directory.
var (
	// needed holds patterns of places, at and above which nothing is mounted.
	needed = []string{
		"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/lib/*-linux-*",
		"/etc/passwd", "/etc/group", "/etc/ld.so.cache", "/etc/mtab", "/tmp",
	}
	// kernels are the places of the kernel's own, in which nothing is mounted either,
	// but for the memory that programs share.
	kernels = []string{"/proc", "/sys", "/dev"}
	// covered are the places of programs, above which nothing is mounted.
	covered = []string{Home, "/var/tmp", sharedMemory}
)

const sharedMemory = "/dev/shm"

func (s Spec) validateMounts() error {
	for i, m := range s.Mounts {
		field := fmt.Sprintf("mounts[%d]", i)
		if !path.IsAbs(m.Host) || !path.IsAbs(m.Guest) || path.Clean(m.Guest) != m.Guest || m.Guest == "/" {
			return specError(field, "host and guest must be absolute, clean paths, and guest must not be /")
		}
		if err := CheckGuestPath(field, strings.TrimPrefix(m.Guest, "/")); err != nil {
			return err
		}
		if what := m.covers(); what != "" {
			return specError(field, fmt.Sprintf("\"%s\" would cover %s, which every program needs", SafeText(m.Guest, 80), what)).
				WithHint("show it elsewhere, such as at " + Home + "/" + SafeText(path.Base(m.Host), 60))
		}
	}
	return nil
}

// covers names what a mount would take away that nothing runs without, or returns "".
func (m Mount) covers() string {
	for _, pattern := range needed {
		if ok, _ := path.Match(pattern, m.Guest); ok { // the patterns are good
			return m.Guest
		}
		if m.holds(pattern) {
			return pattern
		}
	}
	for _, dir := range covered {
		if m.Guest != dir && m.holds(dir) {
			return dir
		}
	}
	for _, dir := range kernels {
		if (Mount{Guest: dir}).holds(m.Guest) && !(Mount{Guest: sharedMemory}).holds(m.Guest) {
			return "what the kernel shows in " + dir
		}
	}
	return ""
}

// holds says whether an absolute path of the sandbox is the mount's, or below it.
func (m Mount) holds(at string) bool {
	return at == m.Guest || strings.HasPrefix(at, m.Guest+"/")
}
