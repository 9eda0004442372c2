package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pinfold/sandbox"
)

// session is one benchmark under way.
type session struct {
	ctx    context.Context //nolint:containedctx // one benchmark, one context
	o      Options
	dir    string // ours, removed at the end
	python string
	data   bool // the modules of dataModules are installed
	report *Report

	server  *server
	docker  *docker
	peers   []*contender
	leftOut []string // contenders that are not there
	closers []func() error
}

// Run measures what the options say and returns the report. A part that fails
// does not end the others. The error is that of the options, of ctx, or of a
// host on which nothing can be measured; failed sandboxes and traces left
// behind are in Report.Failures. When Run returns, nothing that it started is
// left.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &session{ctx: ctx, o: o.withDefaults()}
	s.report = &Report{Command: "bench", Made: time.Now().UTC().Truncate(time.Second), Version: o.Version, Options: s.describe(), Machine: LookAtMachine(), Failures: []string{}}
	if s.python, err = FindPython(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "pinfold-bench-"); err != nil {
		return nil, &sandbox.Error{Code: sandbox.CodeResourceUnavailable, Message: "no temporary directory: " + err.Error(), Err: err}
	}
	before := children(os.Getpid())
	s.measure()
	s.close()
	if err := ctx.Err(); err != nil {
		return nil, &sandbox.Error{Code: sandbox.CodeInternal, Message: "stopped; what was started is gone", Err: err}
	}
	for _, left := range s.leftSince(before) {
		s.fail(errors.New(left))
	}
	s.report.Targets = targets(s.report)
	return s.report, nil
}

// measure goes through the parts.
func (s *session) measure() {
	wanted := slices.DeleteFunc(parts(), func(p part) bool { return len(s.o.Only) > 0 && !slices.Contains(s.o.Only, p.name) })
	if slices.ContainsFunc(wanted, func(p part) bool { return p.peers }) {
		s.o.Progress("looking for contenders")
		s.data = once(s.ctx, s.importing().args, "1") == nil
		s.openServer()
		s.findPeers()
	}
	for _, p := range wanted {
		if s.ctx.Err() != nil {
			return
		}
		s.o.Progress(p.name + ": " + p.meaning)
		if err := p.measure(s); err != nil && s.ctx.Err() == nil {
			s.fail(fmt.Errorf("%s: %w", p.name, err))
		}
	}
}

// describe is how thorough the benchmark is, as flags.
func (s *session) describe() string {
	line := ""
	if s.o.Quick {
		line += " --quick"
	}
	if s.o.Long {
		line += " --long"
	}
	if len(s.o.Only) > 0 {
		line += " --only " + strings.Join(s.o.Only, ",")
	}
	if len(s.o.Without) > 0 {
		line += " --without " + strings.Join(s.o.Without, ",")
	}
	return line
}

func (s *session) fail(err error) {
	s.report.Failures = append(s.report.Failures, sandbox.SafeText(err.Error(), 2000))
	s.o.Progress("FAILED: " + sandbox.SafeText(err.Error(), 2000))
}

// section begins a section; done hands it over when it is complete.
func (s *session) section(part, title, text string) (sec *Section, done func()) {
	sec = &Section{Part: part, Title: title, Text: text, Tables: []*Table{}}
	return sec, func() {
		s.report.Sections = append(s.report.Sections, sec)
		s.o.Section(sec)
	}
}

// sleep waits, but not longer than the benchmark goes on.
func (s *session) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-s.ctx.Done():
	case <-time.After(d):
	}
}

// FindPython returns the path of python3; the one that sandboxes see is preferred.
func FindPython() (string, error) {
	if executable("/usr/bin/python3") {
		return "/usr/bin/python3", nil
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		return "", &sandbox.Error{
			Code: sandbox.CodeResourceUnavailable, Message: "python3 is not installed: there is nothing to compare with",
			Hint: "apt-get install python3", Err: err,
		}
	}
	return filepath.Abs(path)
}

// workloads are what the contenders run.
func (s *session) workloads() []workload {
	all := []workload{s.printing(), nothing()}
	if s.data {
		all = append(all, s.importing())
	}
	return all
}

// findPeers makes the contenders that are there, and remembers which are not.
func (s *session) findPeers() {
	add := func(c *contender, err error) {
		if err != nil {
			s.leftOut = append(s.leftOut, err.Error())
			return
		}
		if tried := c.run(s.ctx, nothing()); tried != nil && c.name != bareName {
			s.leftOut = append(s.leftOut, fmt.Sprintf("it does not work here: %s: %v", c.name, tried))
			return
		}
		s.peers = append(s.peers, c)
	}
	wanted := func(name string) bool { return !slices.Contains(s.o.Without, name) }
	add(bare(), nil)
	if wanted("bubblewrap") {
		add(bubblewrap())
	}
	for _, r := range ociRuntimes() {
		if wanted(r.name) {
			add(s.oci(r))
		}
	}
	if wanted("docker") {
		var err error
		if s.docker, err = s.openDocker(); err != nil {
			add(nil, err)
		} else {
			s.closers = append(s.closers, s.docker.close)
			add(s.docker.contender(), nil)
		}
	}
	if s.o.GoJudge != "" {
		add(s.goJudge(), nil)
	}
	if s.o.E2B != "" {
		add(s.e2b(), nil)
	}
	if c, err := s.pinfoldRun(); err != nil {
		s.fail(err)
	} else {
		s.peers = append(s.peers, c) // that it does not work is a failure, not a reason to leave it out
	}
	if s.server != nil {
		s.peers = append(s.peers, s.server.contenders()...)
	}
	if !s.data {
		s.leftOut = append(s.leftOut, "the imports of "+strings.Join(dataModules(), ", ")+" are not measured: they are not installed (apt-get install python3-pandas python3-matplotlib)")
	}
}

// close ends everything that was started, the last first, and removes the
// directory.
func (s *session) close() {
	for _, f := range slices.Backward(s.closers) {
		if err := f(); err != nil {
			s.fail(err)
		}
	}
	s.closers = nil
	if err := RemoveTree(s.dir); err != nil {
		s.fail(err)
	}
}
