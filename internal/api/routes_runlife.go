package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"time"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

const watchDescription = `A stream of events: state, whose data is the Run, when it begins to wait and to run; stdout and stderr, whose data is an OutputEvent, with all that the result will keep; and at the end result, whose data is the Result. A comment comes every 15 seconds.

Any number may watch, also a run that somebody else of the tenant waits for. Nobody who watches holds up the program. A client that was cut off goes on from the byte at which it stopped: with the offsets of the next bytes it wants, or with Last-Event-ID. Of a run that has finished, output whose bytes are not all UTF-8 comes in the result only.`

const replayDescription = `Takes the request of a run that has finished out of the audit log, runs it as a new run, waits for its end, and compares both: replay in the result. It needs a server that keeps texts (audit.texts in its configuration) and still has those of this run; otherwise it is refused (conflict), and the message says why. Input that came as a stream is not kept. The driver is the one that the run had; what the operator allows, and the values of secrets, are today's.

When the client goes away, the new run is cancelled.`

const runPath = "/v1/runs/{run}"

// runLifeRoutes are about runs that have been asked for.
func (s *server) runLifeRoutes() []route {
	reads := []string{scopeRun, scopeRead}
	offset := func(name string) param {
		return param{name: name, kind: kindInt, min: 0, max: maxOffset, fallback: "0", doc: "The first byte wanted."}
	}
	return []route{
		{
			method: http.MethodGet, path: runPath + "/events", id: "watchRun", tag: "Runs", summary: "Follow a run as events",
			description: watchDescription, scopes: reads, params: []param{offset("stdout"), offset("stderr")},
			headers: []headerParam{{"Last-Event-ID", "The id of the last event that came; it wins over the offsets."}},
			answers: []reply{{http.StatusOK, typeEvents, reflect.TypeFor[OutputEvent](), "The events."}},
			errors:  []int{http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests},
			example: `curl -sN $SERVER/v1/runs/$RUN/events -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).runID, (*call).watchRun),
		},
		{
			method: http.MethodGet, path: runPath + "/wait", id: "waitRun", tag: "Runs", summary: "Wait for a run", scopes: reads,
			description: "Answers when the run has finished or the time is over; state says which.",
			params:      []param{{name: "timeout_ms", kind: kindInt, min: 0, max: maxWaitMS, fallback: "60000", doc: "Milliseconds to wait at most."}},
			answers:     []reply{jsonReply[Run](http.StatusOK, "The run, with its result once it has finished.")}, errors: []int{http.StatusNotFound, http.StatusTooManyRequests},
			example: `curl -s "$SERVER/v1/runs/$RUN/wait?timeout_ms=10000" -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).runID, (*call).waitRun), long: true,
		},
		{
			method: http.MethodPost, path: runPath + "/cancel", id: "cancelRun", tag: "Runs", summary: "Cancel a run",
			description: "Ends the run, wherever it stands and whoever waits for it: its result is killed by cancelled, with what the program had printed. Answers when it has ended. Cancelling one that has finished changes nothing.",
			scopes:      []string{scopeRun}, answers: []reply{jsonReply[Run](http.StatusOK, "The run as it ended; in the state running where that takes more than a minute.")}, errors: []int{http.StatusNotFound, http.StatusTooManyRequests},
			example: `curl -s -X POST $SERVER/v1/runs/$RUN/cancel -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).runID, (*call).cancelRun),
		},
		{
			method: http.MethodPost, path: runPath + "/replay", id: "replayRun", tag: "Runs", summary: "Run what a run was asked for again",
			description: replayDescription, scopes: []string{scopeRun}, answers: []reply{jsonReply[sandbox.Result](http.StatusOK, "What became of the program this time; replay says what differs.")},
			errors:  []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage},
			example: `curl -s -X POST $SERVER/v1/runs/$RUN/replay -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).runID, (*call).replayRun),
		},
	}
}

// startRun answers as soon as a run is recorded.
func (c *call) startRun(req runs.Request) error {
	release := req.Released
	if c.wants == typeEvents {
		release()
		return badRequest("wait", "there are no events of a run that nobody waits for", "ask for application/json, then follow GET /v1/runs/{run}/events")
	}
	r, err := c.o.Engine.Start(c.r.Context(), req)
	if err != nil {
		release()
		return err
	}
	c.w.Header().Set("Location", "/v1/runs/"+r.ID)
	return c.reply(http.StatusAccepted, shownRun(r))
}

func (c *call) replayRun(id string) error {
	result, err := c.o.Engine.Replay(c.r.Context(), c.tenant(), id)
	if err != nil {
		return hide(err)
	}
	return c.ok(c.hold(result))
}

// cancelTimeout bounds how long a caller waits for the end of what was cancelled.
const cancelTimeout = time.Minute

func (c *call) cancelRun(id string) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), cancelTimeout)
	defer cancel()
	return c.run(c.o.Engine.CancelRun(ctx, c.tenant(), id))
}

func (c *call) waitRun(id string) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), time.Duration(c.query.int("timeout_ms"))*time.Millisecond)
	defer cancel()
	r, err := c.o.Engine.AwaitRun(ctx, c.tenant(), id)
	if err != nil {
		return hide(err)
	}
	if cause := context.Cause(c.r.Context()); cause != nil && refusesKey(cause) {
		return cause
	}
	return c.run(r, nil)
}

// watchRun sends what happens in a run until it has ended.
func (c *call) watchRun(id string) error {
	from, err := c.resumeAt()
	if err != nil {
		return err
	}
	w, err := c.o.Engine.WatchRun(c.r.Context(), c.tenant(), id, from)
	if err != nil {
		return hide(err)
	}
	e := c.newEvents(c.w)
	defer e.end()
	if err := e.begin(); err != nil {
		return err
	}
	out := newStreams(e, from)
	for {
		u, err := w.Next(c.r.Context())
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.cutOff(e, hide(err))
		}
		if u.Result != nil {
			if u.Result, err = c.hold(u.Result); err != nil {
				return c.cutOff(e, err)
			}
		}
		if err := sendUpdate(e, out, u); err != nil {
			return err
		}
	}
}

func sendUpdate(e *events, out *streams, u runs.Update) error {
	switch {
	case u.Record != nil:
		return e.send("state", "", shownRun(*u.Record))
	case u.Stream > 0:
		return out.send(u.Stream, u.Chunk)
	}
	if err := out.end(); err != nil {
		return err
	}
	return e.send("result", "", u.Result)
}
