package pinfold

import (
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/store/memstore"
)

// Who closes twice, as with a deferred Close behind a Shutdown, has the same answer twice.
func TestCloseTwice(t *testing.T) {
	l := &Local{engine: engine.New(engine.Options{Store: memstore.New(memstore.Options{}), Drivers: []driver.Driver{fake.New(fake.Options{})}})}
	for _, closes := range []func() error{func() error { return l.Shutdown(t.Context()) }, l.Close, l.Close} {
		if err := closes(); err != nil {
			t.Error(err)
		}
	}
}
