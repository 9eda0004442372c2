//go:build linux

package qemu

import (
	"context"
	"errors"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/linux/failure"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// Of a machine's time readings take one part in so many: a reading of an emulated machine
// costs it more than who reads as often as that of another would think.
const (
	readingShare = 5
	longestPause = 100 * time.Millisecond
)

// Usage reads the counters of the machine's kernel. Who asks too often waits.
func (m *machine) Usage(ctx context.Context) (driver.Usage, error) {
	select {
	case m.pacing <- struct{}{}:
		defer func() { <-m.pacing }()
	case <-ctx.Done():
		return driver.Usage{}, context.Cause(ctx)
	}
	select {
	case <-time.After(time.Until(m.next)):
	case <-m.dead:
	case <-ctx.Done():
	}
	begun := time.Now()
	u, err := m.reading(ctx, wardenwire.OpUsage)
	now := time.Now()
	m.next = now.Add(min((readingShare-1)*now.Sub(begun), longestPause))
	return u, err
}

// BeginRun implements driver.RunMeter.
func (m *machine) BeginRun(ctx context.Context) (driver.Usage, error) {
	return m.reading(ctx, wardenwire.OpBegin)
}

// EndRun implements driver.RunMeter.
func (m *machine) EndRun(ctx context.Context) (driver.Usage, error) {
	return m.reading(ctx, wardenwire.OpEnd)
}

func (m *machine) reading(ctx context.Context, op string) (driver.Usage, error) {
	switch {
	case ctx.Err() != nil:
		return driver.Usage{}, context.Cause(ctx)
	case m.hasEnded():
		return driver.Usage{}, driver.ErrEnded
	case m.paused.Load(): // nobody is there to ask, and nothing has changed
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.last, nil
	}
	answer, err := m.process.link.Ask(ctx, wardenwire.Request{Op: op})
	switch {
	case err == nil && answer.Usage == nil:
		err = errNothingTold
	case err == nil:
		m.note(*answer.Usage)
		return m.tamed(*answer.Usage), nil
	case ctx.Err() != nil:
		return driver.Usage{}, context.Cause(ctx)
	case m.hasEnded() || m.process.hasEnded() || m.process.link.Err() != nil || errors.Is(err, driver.ErrEnded):
		return driver.Usage{}, driver.ErrEnded
	}
	return driver.Usage{}, failure.Of("read the sandbox's counters", err)
}

// note keeps a reading.
func (m *machine) note(u driver.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = m.tamed(u)
}

// maxDenied is how many names of refused calls a reading may have.
const maxDenied = 64

// errNothingTold is the error of a machine that answers without a reading.
var errNothingTold = errors.New("the machine's first process tells nothing")

// tamed is a reading as a machine may tell it: its lists and names are bounded, no number is
// negative, and what was used before the machine went on is not its.
func (m *machine) tamed(u driver.Usage) driver.Usage {
	for _, n := range []*int64{
		&u.CPUNanos, &u.MemoryBytes, &u.MemoryPeak, &u.OOMKills, &u.Processes, &u.ProcessesPeak, &u.ProcessesDenied,
		&u.DiskBytes, &u.DiskPeak, &u.Inodes, &u.InodesPeak, &u.ReadBytes, &u.WrittenBytes,
	} {
		*n = max(0, *n)
	}
	for _, c := range []struct {
		n    *int64
		base int64
	}{
		{&u.CPUNanos, m.base.CPUNanos},
		{&u.OOMKills, m.base.OOMKills},
		{&u.ProcessesDenied, m.base.ProcessesDenied},
		{&u.ReadBytes, m.base.ReadBytes},
		{&u.WrittenBytes, m.base.WrittenBytes},
	} {
		*c.n = max(0, *c.n-max(0, c.base))
	}
	u.Killed = sandbox.SafeText(u.Killed, 60)
	u.Denied = u.Denied[:min(len(u.Denied), maxDenied)]
	for i := range u.Denied {
		u.Denied[i].Name = sandbox.SafeText(u.Denied[i].Name, 60)
	}
	return u
}
