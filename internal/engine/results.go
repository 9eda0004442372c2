package engine

import (
	"context"
	"path"
	"time"

	values "pinfold/internal/interpreter"
	"pinfold/sandbox"
)

// resultsPatience bounds how long values may take to come out.
const resultsPatience = 5 * time.Second

// largeResults is from where on results are taken apart one after another: that
// takes a few times their memory.
const largeResults = 1 << 20

func (e *Engine) parse(file []byte) values.Results {
	if len(file) > largeResults {
		e.parsing.Lock()
		defer e.parsing.Unlock()
	}
	return values.ReadResults(file)
}

// readResults takes the values that the program's harness wrote down. They are
// the guest's word, and the program may still have processes that change the
// file: nothing in it is believed. Whatever is wrong with it costs the program
// its values and nothing else.
func (j *job) readResults(ctx context.Context, s *session) {
	if j.steps.Results == "" {
		return
	}
	if dir, name := path.Split(j.steps.Results); s.lacks(path.Clean(dir), func(found string) bool { return found != name }) {
		return
	}
	start := time.Now()
	defer func() { j.collected += time.Since(start) }()
	ctx, cancel := context.WithTimeout(ctx, resultsPatience)
	defer cancel()
	var file values.Buffer
	g, err := s.agent(ctx)
	if err == nil {
		_, err = g.ReadFile(ctx, j.steps.Results, values.MaxResultsBytes, &file)
	}
	var read values.Results
	switch e := sandbox.AsError(err); {
	case e == nil:
		read = j.engine.parse(file.Bytes())
	case e.Code != sandbox.CodeFileNotFound:
		read = values.Skip(e.Code, "the program's results: "+e.Message)
	}
	j.result.Results = append(j.result.Results, read.Values...)
	j.result.ResultsSkipped = read.Skipped
}
