package bench

import (
	"fmt"
	"io"
	"sync"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// transfer measures files up and down and output through a stream, and what the
// server's memory does meanwhile.
func (s *session) transfer() error {
	if s.server == nil {
		return nil // why is said already
	}
	size, rounds := int64(512<<20), 5
	if s.o.Quick {
		size, rounds = 32<<20, 1
	}
	sec, done := s.section("transfer", "Files and output", fmt.Sprintf("Over the server's connection: %d MiB up and down, %d times each, and as much output through a stream. Memory is the server's, before and at most.", size>>20, rounds))
	defer done()
	x, err := s.server.cl.Create(s.ctx, sandbox.Create{Limits: sandbox.Limits{DiskBytes: 2 * size, FileSizeBytes: 2 * size, MemoryBytes: 1 << 30}})
	if err != nil {
		return err
	}
	defer destroy(x)
	t := &Table{ID: "transfer", First: "what", Columns: []Column{
		{"median_mb_s", "median", UnitSpeed},
		{"best_mb_s", "best", UnitSpeed},
		{"memory_before_mb", "memory before", UnitMB},
		{"memory_most_mb", "at most", UnitMB},
	}}
	sec.Tables = append(sec.Tables, t)
	for _, m := range []struct {
		what string
		do   func(*client.Sandbox, int64) error
	}{{"a file up", s.up}, {"a file down", s.down}, {"output", s.output}} {
		before := s.serverMemory()
		highest, stop := s.watchMemory()
		var times sample
		for range rounds {
			began := time.Now()
			if err := m.do(x, size); err != nil {
				stop()
				return fmt.Errorf("%s: %w", m.what, err)
			}
			times = append(times, time.Since(began))
		}
		stop()
		speed := func(d time.Duration) float64 { return float64(size) / 1e6 / d.Seconds() }
		t.Add(m.what, "", speed(times.median()), speed(times.at(0)), before, max(before, *highest))
	}
	return nil
}

func (s *session) up(x *client.Sandbox, size int64) error {
	return x.WriteFile(s.ctx, "f", 0o644, size, io.LimitReader(zeros{}, size))
}

func (s *session) down(x *client.Sandbox, size int64) error {
	n, err := x.ReadFile(s.ctx, "f", 0, -1, io.Discard)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes came", n)
	}
	return err
}

func (s *session) output(x *client.Sandbox, size int64) error {
	var n counter
	p, err := x.Exec(s.ctx, sandbox.Command{Shell: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)}, client.ExecOptions{Stdout: &n})
	if err == nil && int64(n) != size {
		err = fmt.Errorf("%d bytes came; %+v", n, p.Cause)
	}
	return err
}

// serverMemory is the server's own unshared memory in MB; none of one elsewhere.
func (s *session) serverMemory() float64 {
	if s.server.child == nil {
		return none
	}
	return float64(Unshared(s.server.child.pid)) / (1 << 20)
}

// watchMemory follows the server's memory until stop is called.
func (s *session) watchMemory() (highest *float64, stop func()) {
	highest = new(float64)
	*highest = s.serverMemory()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
				*highest = max(*highest, s.serverMemory())
			}
		}
	})
	return highest, func() { close(done); wg.Wait() }
}
