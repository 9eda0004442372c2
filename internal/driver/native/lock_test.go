//go:build linux

package native

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Many programs that begin and end at the same time make and remove the directory of
// their locks under each other's hands, and each gets its lock.
func TestLocksOfManyAtOnce(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 400 {
				d := &Driver{options: Options{StateDir: state}, token: fmt.Sprintf("%d-%d", i, n)}
				h := &host{}
				if err := d.lockState(h); err != nil {
					t.Error(err)
					return
				}
				if !locked(h.lock.Name()) {
					t.Error("the lock is not seen")
				}
				h.unlockState()
			}
		})
	}
	all.Wait()
	if _, err := os.Lstat(state); err == nil {
		t.Error("the directory stays")
	}
}
