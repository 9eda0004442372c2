//go:build failpoints

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var hits atomic.Int64

// Hit kills the process if this is the moment that PINFOLD_FAILPOINT names.
func Hit(name string) {
	want, times, _ := strings.Cut(os.Getenv(Env), ":")
	if want != name {
		return
	}
	n, err := strconv.ParseInt(times, 10, 64)
	if err != nil {
		n = 1
	}
	if hits.Add(1) != n {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
