//go:build linux

package attacks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/language"
	"pinfold/internal/wire"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// family is a zygote of interpreters.
type family struct {
	*arena
	zygote driver.Zygote
	plan   driver.Plan
	born   int
}

// edit changes one of Pinfold's own files, for a control.
type edit struct{ file, from, to string }

// raise starts a zygote that has loaded a module of the given source. edits take
// defences away.
func (a *arena) raise(module string, limits sandbox.Limits, edits ...edit) (*family, error) {
	ctx, cancel := context.WithTimeout(a.Context(), patience)
	defer cancel()
	report, err := a.driver.Probe(ctx, imagetest.Host(a))
	if err != nil {
		return nil, err
	}
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x", Limits: limits}.WithDefaults().Machine(), imagetest.Host(a), report, fmt.Sprintf("family-%d", time.Now().UnixNano()))
	if err != nil {
		return nil, err
	}
	python, err := language.Find("python")
	if err != nil {
		return nil, err
	}
	step, _, err := python.ZygoteStep(nil, plan.Limits, func(names []string) (string, bool) { return plan.Template.Lookup(os.DirFS("/"), names) })
	if err != nil {
		return nil, err
	}
	spec := zygote.Spec{
		Args: step.Args, Env: step.Env, Setup: json.RawMessage(`{"modules": ["treasure"]}`),
		Home: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID, Limits: []zygote.Rlimit{{Resource: 7, Value: 1024}},
	}
	spec.Files = append(spec.Files, zygote.GuestFile{Path: path.Dir(step.Files[0].Path) + "/treasure.py", Content: []byte(module)})
	for _, f := range step.Files {
		text := string(f.Content)
		for _, e := range edits {
			if path.Base(f.Path) == e.file {
				if !strings.Contains(text, e.from) {
					return nil, fmt.Errorf("%s has no %q", e.file, e.from)
				}
				text = strings.Replace(text, e.from, e.to, 1)
			}
		}
		spec.Files = append(spec.Files, zygote.GuestFile{Path: f.Path, Content: []byte(text)})
	}
	p, err := a.driver.Abilities().Zygoter.NewZygote(ctx, plan, spec)
	if err != nil {
		return nil, err
	}
	a.Cleanup(func() {
		if err := p.Destroy(context.Background()); err != nil {
			a.Errorf("destroying a zygote: %v", err)
		}
	})
	return &family{arena: a, zygote: p, plan: plan}, nil
}

// relative is a fork that lives.
type relative struct {
	family  *family
	machine driver.Machine
	forked  *zygote.Child
}

// fork makes a fork and hands it its program, with the prelude in front.
func (f *family) fork(code string) (*relative, error) {
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	f.born++
	plan := f.plan
	plan.ID = fmt.Sprintf("%s-%d", f.plan.ID, f.born)
	m, forked, err := f.zygote.Fork(ctx, plan)
	if err != nil {
		return nil, err
	}
	r := &relative{family: f, machine: m, forked: forked}
	job, err := json.Marshal(map[string]any{"file": "main.py", "code": f.prelude + code, "args": nil, "env": nil, "allowed_imports": nil, "results": false})
	if err == nil {
		_, err = fmt.Fprintf(forked.Stdin, "%08x%s", len(job), job)
	}
	if err != nil {
		return nil, errors.Join(err, r.end())
	}
	return r, nil
}

// line reads what the fork says next.
func (r *relative) line() (string, error) {
	_ = r.forked.Stdout.SetReadDeadline(time.Now().Add(time.Minute))
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := r.forked.Stdout.Read(b); err != nil {
			said, _ := io.ReadAll(io.LimitReader(r.forked.Stderr, 2000))
			return string(line), fmt.Errorf("a fork said %q, then %w: %s", line, err, said)
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

// rest lets the fork go on and returns all that it says.
func (r *relative) rest() (string, error) {
	_ = r.forked.Stdin.Close()
	_ = r.forked.Stdout.SetReadDeadline(time.Now().Add(time.Minute))
	_ = r.forked.Stderr.SetReadDeadline(time.Now().Add(time.Minute))
	out, err := io.ReadAll(r.forked.Stdout)
	said, _ := io.ReadAll(r.forked.Stderr)
	if err == nil && len(out) == 0 && len(said) > 0 {
		err = fmt.Errorf("a fork said only %q", said)
	}
	return string(out), err
}

// end destroys the fork's machine.
func (r *relative) end() error {
	err := r.machine.Destroy(context.Background())
	for _, f := range []*os.File{r.forked.Stdin, r.forked.Stdout, r.forked.Stderr} {
		_ = f.Close()
	}
	return err
}

// startsAgent ends what the fork has become, starts the agent in place of the init stub,
// and has it find the program's file.
func (r *relative) startsAgent() error {
	ctx, cancel := context.WithTimeout(r.family.Context(), time.Minute)
	defer cancel()
	stub := r.machine.Abilities().InitStub
	if stub == nil {
		return errors.New("the machine does not sleep")
	}
	if err := stub.KillGuest(ctx); err != nil {
		return err
	}
	conn, err := r.machine.Dial(ctx)
	if err != nil {
		return err
	}
	g, err := guest.New(ctx, conn, wire.Hello{UID: sandbox.UID, GID: sandbox.GID, SwitchUser: r.family.plan.SwitchUser, Home: sandbox.Home})
	if err != nil {
		return err
	}
	_, err = g.Stat(ctx, "main.py")
	return errors.Join(err, g.Close())
}

// tell runs a program in a fork to its end.
func (f *family) tell(code string) (string, error) {
	r, err := f.fork(code)
	if err != nil {
		return "", err
	}
	out, err := r.rest()
	return out, errors.Join(err, r.end())
}

// serves says whether the zygote still makes good forks.
func (f *family) serves() error {
	select {
	case <-f.zygote.Dead():
		return errors.New("the zygote is dead")
	default:
	}
	out, err := f.tell("say('sum', 6 * 7)")
	if err == nil && out != "sum 42\n" {
		err = fmt.Errorf("a new fork says %q", out)
	}
	return err
}
