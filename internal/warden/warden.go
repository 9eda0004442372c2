//go:build linux

package warden

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/driver/native"
	"pinfold/internal/image"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// warden is the state of a machine's first process.
type warden struct {
	control *os.File
	agent   []byte
	driver  *native.Driver
	shown   image.Template
	report  driver.Report

	send sync.Mutex // one line at a time

	mu      sync.Mutex
	machine driver.Machine // the sandbox; nil before it is made
	relayed chan struct{}  // closed when all that the agent said has been passed on
}

// Run serves the host, and switches the machine off when it has gone. It never returns.
func Run(build string, console io.Writer) {
	_, _ = fmt.Fprintln(console, "pinfold-warden:", run(build))
	off()
	select {} // the kernel panics when its first process ends
}

// run serves until something fails, which may be that the host has gone.
func run(build string) error {
	if err := begin(); err != nil {
		return err
	}
	control, err := openPort(wardenwire.PortControl)
	if err != nil {
		return err
	}
	w := &warden{control: control}
	w.say(wardenwire.Reply{Hello: &wardenwire.Hello{Version: wardenwire.Version, Build: build, Kernel: release()}})
	return w.serve()
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// serve answers requests until the host has gone.
func (w *warden) serve() error {
	in := bufio.NewReaderSize(w.control, 64<<10)
	for {
		line, err := readLine(in)
		if err != nil {
			return err
		}
		var r wardenwire.Request
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		go w.answer(r)
	}
}

func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > wardenwire.MaxRequest {
			return line, err
		}
	}
}

// say sends a message. An error means that the host is gone, which serve notices too.
func (w *warden) say(r wardenwire.Reply) {
	line, err := json.Marshal(r)
	if err != nil {
		line, _ = json.Marshal(wardenwire.Reply{ID: r.ID, Error: sandbox.Errorf(sandbox.CodeInternal, "answer the host: %w", err)})
	}
	w.send.Lock()
	defer w.send.Unlock()
	_, _ = w.control.Write(append(line, '\n'))
}

func (w *warden) answer(r wardenwire.Request) {
	reply, err := w.do(context.Background(), r)
	reply.ID = r.ID
	switch {
	case errors.Is(err, driver.ErrEnded):
		reply.Ended = true
	case err != nil:
		reply.Error = sandbox.AsError(err)
	}
	w.say(reply)
}

func (w *warden) do(ctx context.Context, r wardenwire.Request) (reply wardenwire.Reply, err error) {
	switch r.Op {
	case wardenwire.OpPing:
		return reply, nil
	case wardenwire.OpPrepare:
		if r.Template == nil {
			return reply, unix.EINVAL
		}
		if err := w.prepare(ctx, *r.Template); err != nil {
			return reply, err
		}
		return wardenwire.Reply{Report: &w.report}, nil
	case wardenwire.OpCreate:
		if r.Plan == nil {
			return reply, unix.EINVAL
		}
		if err := refresh(r.Fresh); err != nil {
			return reply, err
		}
		return reply, w.create(ctx, *r.Plan)
	}
	return w.ofSandbox(ctx, r)
}

// ofSandbox does what is asked of the sandbox.
func (w *warden) ofSandbox(ctx context.Context, r wardenwire.Request) (reply wardenwire.Reply, err error) {
	w.mu.Lock()
	m := w.machine
	w.mu.Unlock()
	if m == nil {
		return reply, errors.New("there is no sandbox yet")
	}
	var u driver.Usage
	switch r.Op {
	case wardenwire.OpUsage:
		u, err = m.Usage(ctx)
	case wardenwire.OpBegin:
		u, err = m.Abilities().RunMeter.BeginRun(ctx)
	case wardenwire.OpEnd:
		u, err = m.Abilities().RunMeter.EndRun(ctx)
	case wardenwire.OpRenew:
		if err := refresh(r.Fresh); err != nil {
			return reply, err
		}
		one, ok := m.(interface{ Renew() })
		if !ok {
			return reply, errors.ErrUnsupported
		}
		if r.Fresh != nil {
			one.Renew()
		}
		return reply, nil
	case wardenwire.OpDestroy:
		return reply, m.Destroy(ctx)
	default:
		return reply, fmt.Errorf("there is no operation %q", r.Op)
	}
	if err != nil {
		return reply, err
	}
	return wardenwire.Reply{Usage: &u}, nil
}

// prepare shows the disk and looks what can be enforced here.
func (w *warden) prepare(ctx context.Context, t image.Template) (err error) {
	if w.driver != nil {
		return errors.New("it is prepared already")
	}
	if w.agent, err = os.ReadFile(wardenwire.AgentFile); err != nil {
		return err
	}
	_ = os.Remove(wardenwire.AgentFile) // gives its memory back
	if err := enterDisk(); err != nil {
		return err
	}
	for _, b := range t.Binds {
		if _, err := os.Lstat(b.Source); err != nil {
			return fmt.Errorf("the disk lacks a part of the template: %w", err)
		}
	}
	w.shown = t
	w.driver = native.New(native.Options{Agent: func() ([]byte, error) { return w.agent, nil }, AgentDoors: true})
	w.report, err = w.driver.Probe(ctx, t)
	return err
}

// create makes the sandbox that the host has planned, with what is the machine's own.
func (w *warden) create(ctx context.Context, p driver.Plan) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.driver == nil || w.machine != nil {
		return errors.New("a sandbox is made once, in a machine that is prepared")
	}
	if err := w.meets(p); err != nil {
		return err
	}
	p.Template = w.shown
	p.SwitchUser, p.Processors = w.report.SwitchUser, w.report.Processors
	port, err := openPort(wardenwire.PortAgent)
	if err != nil {
		return err
	}
	m, err := w.driver.Create(ctx, p)
	if err != nil {
		return errors.Join(err, port.Close())
	}
	conn, err := m.Dial(ctx)
	if err != nil {
		return errors.Join(err, m.Destroy(ctx), port.Close())
	}
	w.machine, w.relayed = m, make(chan struct{})
	go func() {
		_, _ = io.Copy(struct{ io.Writer }{conn}, port) // it must see each write
		_ = conn.Close()
	}()
	go func() {
		_, _ = io.Copy(port, conn)
		close(w.relayed)
	}()
	go w.tell(m)
	return nil
}

// meets says whether the machine can enforce what was planned: the host's plan comes from
// a report of another machine of the same make.
func (w *warden) meets(p driver.Plan) error {
	if w.report.Blocked != nil {
		return w.report.Blocked
	}
	for _, feature := range p.Posture.Enforced {
		has := slices.ContainsFunc(w.report.Findings, func(f driver.Finding) bool {
			return f.Answer == driver.Yes && sandbox.Satisfies(f.Feature, feature)
		})
		if !has {
			return sandbox.Errorf(sandbox.CodeSetupFailed, "this machine cannot enforce %s, which another of its make could", feature)
		}
	}
	return nil
}

// passOn bounds how long what an agent said last may take to be passed on.
const passOn = 2 * time.Second

// tell tells the sandbox's end, after all that its agent said.
func (w *warden) tell(m driver.Machine) {
	<-m.Dead()
	death := m.Death()
	select {
	case <-w.relayed:
	case <-time.After(passOn):
	}
	death.Evidence = strings.TrimSpace(cmp.Or(death.Evidence, "it ended"))
	w.say(wardenwire.Reply{Death: &death})
}
