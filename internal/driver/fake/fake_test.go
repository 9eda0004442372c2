//go:build linux

package fake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/fake"
	"pinfold/internal/image"
	"pinfold/internal/zygote"
)

func TestConformance(t *testing.T) {
	const impossible = "the impossible step"
	open := func(t *testing.T) driver.Driver {
		d := fake.New(fake.Options{Zygote: takeSomeTime, Script: func(p driver.Plan) fake.Script {
			if p.Hostname == impossible {
				return fake.Script{Create: fail(impossible)}
			}
			return fake.Script{Create: takeSomeTime}
		}})
		t.Cleanup(func() {
			if n := d.Living(); n > 0 {
				t.Errorf("%d machines live", n)
			}
		})
		return d
	}
	drivertest.Run(t, open, drivertest.Options{
		KillAgent: func(m driver.Machine) error {
			m.(*fake.Machine).Die(driver.Death{Kind: driver.DeathAgent, Evidence: "killed by the test"})
			return nil
		},
		Break: func(_ *testing.T, p *driver.Plan) string { p.Hostname = impossible; return impossible },
		Zygotes: &drivertest.Zygotes{
			Spec:  func(*testing.T, image.Template) zygote.Spec { return zygote.Spec{} },
			Exit7: "exit 7", Endless: "sleep",
		},
	})
}

func fail(step string) func(context.Context) error {
	return func(context.Context) error { return errors.New(step) }
}

// takeSomeTime leaves room for a context that ends during Create.
func takeSomeTime(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}
