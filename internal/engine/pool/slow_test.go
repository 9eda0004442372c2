package pool

import (
	"testing"
	"time"

	"pinfold/internal/zygote/supervisor"
	"pinfold/sandbox"
)

// Modules that never end loading cost the first requests the time that they wait, not each
// request its own.
func TestSlowLoading(t *testing.T) {
	p := &pool{zygotes: supervisor.New(supervisor.Options{}), spec: sandbox.PoolSpec{Language: "python", Warm: []string{"slow"}}, filling: 1, fillingSince: time.Now()}
	if info := p.info(); !p.expectsMachine() || info.Error != nil {
		t.Errorf("a pool that has just begun is given up: %v", info.Error)
	}
	p.fillingSince = time.Now().Add(-warmTimeout - time.Second)
	info := p.info()
	if p.expectsMachine() || info.Error == nil || info.Error.Field != "warm" || whyNone([]*pool{p}, false, Request{}) != info.Error.Message {
		t.Errorf("a pool that has been loading for long is waited for: %+v", info)
	}
	if p.filling = 0; p.fillsSlowly() {
		t.Error("a pool is slow that makes nothing")
	}
}
