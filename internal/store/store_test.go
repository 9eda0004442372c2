package store

import (
	"os"
	"testing"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/storetest"
)

func TestSQLiteKeepsTheContract(t *testing.T) {
	base := t.TempDir()
	storetest.Run(t, func(now func() time.Time) (records.Store, func(), error) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			return nil, nil, err
		}
		s, err := Open(t.Context(), dir, WithClock(now))
		if err != nil {
			return nil, nil, err
		}
		return s, func() { s.Close(); os.RemoveAll(dir) }, nil
	})
}
