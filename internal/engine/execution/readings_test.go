package execution

import (
	"context"
	"errors"
	"testing"
	"time"

	"pinfold/internal/driver"
)

// counted is a machine whose readings are listed; after the last one it has ended.
type counted struct {
	driver.Machine
	readings []error
	n        int64
	dead     chan struct{}
}

func (m *counted) Usage(context.Context) (driver.Usage, error) {
	if int(m.n) == len(m.readings) {
		return driver.Usage{}, driver.ErrEnded
	}
	m.n++
	return driver.Usage{CPUNanos: m.n}, m.readings[m.n-1]
}

func (m *counted) Dead() <-chan struct{} { return m.dead }

func (m *counted) Death() driver.Death { return driver.Death{Usage: driver.Usage{CPUNanos: 100}} }

// A reading that fails is none, and the watch goes on; with the machine it ends, and with
// its context.
func TestWatchEndsWithTheMachine(t *testing.T) {
	m := &counted{readings: []error{nil, errors.New("no descriptors"), nil}, dead: make(chan struct{})}
	s := &Session{Machine: m}
	var seen []int64
	s.Watch(t.Context(), nil, func(u driver.Usage, _ time.Duration) (time.Duration, bool) {
		seen = append(seen, u.CPUNanos)
		return time.Millisecond, true
	})
	if len(seen) != 2 || seen[0] != 1 || seen[1] != 3 {
		t.Errorf("the watch has seen %v", seen)
	}
	if u := s.orLast(driver.Usage{}, errors.New("no descriptors")); u.CPUNanos != 3 {
		t.Errorf("the last reading is %+v", u)
	}
	close(m.dead)
	if u := s.LastUsage(t.Context()); u.CPUNanos != 100 {
		t.Errorf("the last reading of a machine that has ended is %+v", u)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m.readings, m.n = make([]error, 1000), 0
	s.Watch(ended, nil, func(driver.Usage, time.Duration) (time.Duration, bool) { return 0, true })
	if m.n > 10 {
		t.Errorf("%d readings after the end of the context", m.n)
	}
}
