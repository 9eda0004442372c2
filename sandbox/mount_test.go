package sandbox

import (
	"strings"
	"testing"
)

// TestMountsThatCover: a directory shown at /usr once ended in "no such command".
func TestMountsThatCover(t *testing.T) {
	for guest, what := range map[string]string{
		"/usr": "/usr/bin", "/usr/bin": "/usr/bin", "/usr/lib": "/usr/lib", "/usr/lib/x86_64-linux-gnu": "/usr/lib/x86_64-linux-gnu",
		"/lib": "/lib", "/lib64": "/lib64", "/bin": "/bin", "/etc": "/etc/passwd", "/etc/passwd": "/etc/passwd",
		"/proc": "what the kernel shows in /proc", "/proc/self": "what the kernel shows in /proc", "/sys/fs": "what the kernel shows in /sys",
		"/dev": "/dev/shm", "/dev/null": "what the kernel shows in /dev", "/home": Home, "/var": "/var/tmp", "/tmp": "/tmp",
	} {
		err := Spec{Code: "x", Mounts: []Mount{{Host: "/srv/a", Guest: "/data"}, {Host: "/srv/two words", Guest: guest}}}.Validate()
		e := AsError(err)
		if e == nil || e.Field != "mounts[1]" || !strings.Contains(e.Message, "would cover "+what+", which") || e.Hint != "show it elsewhere, such as at /home/user/two words" {
			t.Errorf("%s: %v", guest, err)
		}
		if c := (Create{Mounts: []Mount{{Host: "/srv", Guest: guest}}}); c.Validate() == nil {
			t.Errorf("%s: a living sandbox may have it", guest)
		}
	}
	for _, guest := range []string{
		"/data", Home, Home + "/x", "/usr/local", "/usr/local/lib", "/usr/share", "/usr/lib/python3", "/usr/lib/python3/dist-packages", "/usr/library",
		"/etc/ssl", "/dev/shm", "/dev/shm/x", "/var/tmp", "/var/lib/x", "/opt", "/tmp/x", "/devices", "/mnt/x", "/run",
	} {
		if err := (Spec{Code: "x", Mounts: []Mount{{Host: "/srv", Guest: guest}}}).Validate(); err != nil {
			t.Errorf("%s: %v", guest, err)
		}
	}
}
