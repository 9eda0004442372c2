package runs

import (
	"context"
	"path"
	"time"

	"pinfold/internal/engine/execution"
	values "pinfold/internal/interpreter"
	"pinfold/sandbox"
)

// resultsTimeout bounds how long values may take to come out.
const resultsTimeout = 5 * time.Second

// Results from manyResults on are taken apart one after another: that takes a few
// times their memory, and much more of a processor than writing them.
const manyResults = 64 << 10

// largeResults is what the host reads by itself of a file of results.
const largeResults = 1 << 20

func (rn *Runner) parse(file []byte) values.Results {
	if len(file) > manyResults {
		rn.parsing.Lock()
		defer rn.parsing.Unlock()
	}
	return values.ReadResults(file)
}

// readResults takes the values that the program's harness wrote down. They are
// the guest's word, and the program may still have processes that change the
// file: nothing in it is believed. Whatever is wrong with it costs the program
// its values and nothing else.
func (j *job) readResults(ctx context.Context, s *execution.Session) {
	if j.steps.Results == "" {
		return
	}
	if dir, name := path.Split(j.steps.Results); s.Lacks(path.Clean(dir), func(found string) bool { return found != name }) {
		return
	}
	start := time.Now()
	defer func() { j.collected += time.Since(start) }()
	ctx, cancel := context.WithTimeout(ctx, resultsTimeout)
	defer cancel()
	file, err := readValues(ctx, s, j.steps.Results)
	var read values.Results
	switch e := sandbox.AsError(err); {
	case e == nil:
		read = j.runner.parse(file)
	case e.Code != sandbox.CodeFileNotFound:
		read = values.Skip(e.Code, "the program's results: "+e.Message)
	}
	j.result.Results = append(j.result.Results, read.Values...)
	j.result.ResultsSkipped = read.Skipped
}

// readValues reads the file of values. Where no agent runs, the host reads a small
// one by itself, which is less work than the agent's start.
func readValues(ctx context.Context, s *execution.Session, name string) ([]byte, error) {
	if looker := s.Machine.Abilities().Looker; looker != nil && s.Greeted() == nil {
		if file, ok := looker.Read(name, largeResults); ok {
			return file, nil
		}
	}
	g, err := s.Agent(ctx)
	if err != nil {
		return nil, err
	}
	var file values.Buffer
	_, err = g.ReadFile(ctx, name, values.MaxResultsBytes, &file)
	return file.Bytes(), err
}
