//go:build linux

package native

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// A zygote that has too much to do is not ended, as all that run would end with
// it; and nobody waits for a fork that has ended. There is no process here: to
// end it would panic.
func TestAwaitingForks(t *testing.T) {
	for _, test := range []struct {
		name string
		does func(p *zygote)
		code string
		took time.Duration
	}{
		{"a parent that forks for others", func(p *zygote) {
			for range 9 {
				time.Sleep(time.Second)
				p.take(packet{Exit: 7}) // somebody else's
			}
		}, sandbox.CodeResourceUnavailable, forkTimeout},
		{"a fork that was killed before it was there", func(p *zygote) {
			p.take(packet{Born: 1, PID: 40})
			p.take(packet{Exit: 40, exit: driver.ChildExit{Signal: 9}})
		}, sandbox.CodeSetupFailed, 0},
		{"one that says why it ends", func(p *zygote) {
			p.take(packet{Fork: 1, call: 1, errno: unix.EPERM})
			p.take(packet{Born: 1, PID: 40})
			p.take(packet{Exit: 40})
		}, sandbox.CodeSetupFailed, 0},
		{"one that is ready", func(p *zygote) { p.take(packet{Ready: 1, PID: 5}) }, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &zygote{machine: &machine{dead: make(chan struct{})}, forks: map[int64]*fork{}, pids: map[int64]int64{}, ready: make(chan packet, 1), silent: make(chan struct{})}
				f := &fork{ready: make(chan packet, 1), exited: make(chan driver.ChildExit, 1)}
				if id, err := p.register(f); id != 1 || err != nil {
					t.Fatal(id, err)
				}
				begun := time.Now()
				go test.does(p)
				_, err := p.await(t.Context(), f)
				if took := time.Since(begun); took != test.took {
					t.Errorf("it took %v, not %v", took, test.took)
				}
				switch {
				case test.code == "" && err != nil:
					t.Error(err)
				case test.code != "" && sandbox.AsError(err).Code != test.code:
					t.Errorf("%v, not %s", err, test.code)
				}
			})
		})
	}
}
