package api

import (
	"context"
	"time"

	"pinfold/internal/headroom"
	"pinfold/sandbox"
)

// holdAnswer gives a request a share of the memory for answers. What is read for
// its answer, from records and from guests, asks there for room, before it is
// read where its size is known. giveBack is for when the answer has gone out, or
// its client has been given up: one that reads nothing is after ClientTimeout.
func (c *call) holdAnswer() (giveBack func()) {
	c.room = c.answers.share(c.tenant())
	c.r = c.r.WithContext(headroom.With(c.r.Context(), func(bytes int64) error {
		if !c.room.add(bytes) {
			return noRoom()
		}
		return nil
	}))
	return c.room.giveBack
}

func noRoom() error {
	return &sandbox.Error{
		Code: sandbox.CodeBusy, Message: "too many large answers at once that have not been read",
		Hint: "read those that you have asked for, and try again in a moment",
	}
}

// hold sees to it that the result of a run that has just ended has room. It came
// without having asked, and cannot be refused: the program would run again. So
// what finds no room is let go, and fetched from where it is recorded when there
// is some.
func (c *call) hold(result *sandbox.Result) (*sandbox.Result, error) {
	if c.room.growTo(headroom.OfResult(result)) {
		return result, nil
	}
	return c.fetchLater(result.ID)
}

func (c *call) fetchLater(run string) (*sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), c.o.ClientTimeout+time.Second) // by then who does not read is gone
	defer cancel()
	for {
		freed := c.answers.freed()
		r, err := c.o.Engine.RunRecord(ctx, c.tenant(), run)
		switch {
		case err == nil && r.Result != nil:
			return r.Result, nil
		case err == nil:
			return nil, ended(run)
		case sandbox.AsError(err).Code != sandbox.CodeBusy:
			return nil, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ended(run)
		}
	}
}

// ended says of a run that has been done why its result is not here. It is not a
// code after which clients try again.
func ended(run string) error {
	return &sandbox.Error{
		Code: sandbox.CodeTooLarge, Message: "the run has ended, and there is no room for its result among the answers that have not been read",
		Hint: "fetch it later: GET /v1/runs/" + run,
	}
}
