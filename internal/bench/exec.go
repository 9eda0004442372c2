package bench

import (
	"context"
	"fmt"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// exec measures a command in a sandbox that lives.
func (s *session) exec() error {
	if s.server == nil {
		return nil // why is said already
	}
	sec, done := s.section("exec", "A command in a living sandbox: `/bin/true`", "One at a time, over HTTP.")
	defer done()
	x, err := s.server.cl.Create(s.ctx, sandbox.Create{})
	if err != nil {
		return err
	}
	defer destroy(x)
	all := []*contender{{name: "pinfold", ours: true, run: func(ctx context.Context, _ workload) error { return execTrue(ctx, x) }}}
	if s.docker != nil {
		name, err := s.docker.living(s.ctx)
		if err != nil {
			sec.Note("left out: docker exec: %v", err)
		} else {
			all = append(all, &contender{name: "docker exec", note: "its command line", run: func(ctx context.Context, _ workload) error {
				return s.docker.do(ctx, "exec", name, trueProgram)
			}})
		}
	}
	times, err := s.race(sec, nothing(), all, max(s.o.Rounds, 20))
	if err != nil {
		return err
	}
	t := &Table{ID: "exec", First: "what", Columns: spread()}
	for _, c := range all {
		if len(times[c]) > 0 {
			t.Add(c.name, "", times[c].values()...)
		}
	}
	sec.Tables = append(sec.Tables, t)
	return nil
}

func execTrue(ctx context.Context, x *client.Sandbox) error {
	p, err := x.Exec(ctx, sandbox.Command{Args: []string{trueProgram}}, client.ExecOptions{})
	if err == nil && p.Status != sandbox.StatusSucceeded {
		err = fmt.Errorf("%s: %+v", trueProgram, p)
	}
	return err
}

// destroy ends a sandbox also when the benchmark is over; its time to live
// would, too.
func destroy(x *client.Sandbox) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, _ = x.Destroy(ctx) // what a sandbox leaves is looked for at the end
}
