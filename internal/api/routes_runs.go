package api

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"time"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Run is a run as it stands: under way, or with its result.
type Run struct {
	ID         string            `json:"id"`
	State      sandbox.RunState  `json:"state"`
	CreatedAt  time.Time         `json:"created_at"`
	StartedAt  time.Time         `json:"started_at,omitzero"`
	FinishedAt time.Time         `json:"finished_at,omitzero"`
	Language   string            `json:"language"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Status     sandbox.Status    `json:"status,omitempty"`
	Cause      sandbox.CauseKind `json:"cause,omitempty"`
	Result     *sandbox.Result   `json:"result,omitempty"`
}

func shownRun(r records.Run) Run {
	return Run{
		ID: r.ID, State: r.State, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		Language: r.Language, Metadata: r.Metadata, Status: r.Status, Cause: r.Cause, Result: r.Result,
	}
}

// List is a page of objects. Next, given back as cursor, asks for what follows.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// items is a list in one page.
func items[T any](all []T) List[T] { return List[T]{Items: append([]T{}, all...)} }

func list[A, B any](p records.Page[A], f func(A) B) List[B] {
	out := List[B]{Items: make([]B, 0, len(p.Items)), Next: p.Next}
	for _, a := range p.Items {
		out.Items = append(out.Items, f(a))
	}
	return out
}

// RunEvent is the data of one of the events of a run's stream.
type RunEvent struct {
	ID     string `json:"id,omitempty"`     // of start
	Text   string `json:"text,omitempty"`   // of stdout and stderr
	Base64 string `json:"base64,omitempty"` // of stdout and stderr, when the bytes are not UTF-8
	Offset int64  `json:"offset"`
}

type started struct {
	ID string `json:"id"`
}

const runDescription = `Runs one program in one fresh sandbox, waits for its end and answers with the whole result. What became of the program is in the result; an error means that nothing was run.

With "Accept: text/event-stream" the answer is a stream of events: start {"id"}, pending_approval (an Approval) where a person is asked first, stdout and stderr {"offset", "text"} (or "base64" where the bytes are not UTF-8), and at the end result (a Result) or error. A comment comes every 15 seconds.

When the client goes away, the run is cancelled; not so with an Idempotency-Key: then it goes on, and asking again with the same key and the same body gives the same result without running again.

With ?wait=false the run goes on by itself: the answer (202) comes when it is recorded, and Location says where it is. Follow it there, fetch its result, or cancel it. Such runs wait for room as long as it takes, behind those for which somebody waits; of each tenant there are at most so many (capacity.detached).

With ?stdin=true the program's standard input stays open: what is sent to /v1/runs/{run}/stdin while the run goes on is what it reads. The id is in the start event, or in the answer with ?wait=false.`

func (s *server) runRoutes() []route {
	runs := []string{scopeRun}
	reads := []string{scopeRun, scopeRead}
	all := []route{
		{
			method: http.MethodPost, path: "/v1/runs", id: "createRun", tag: "Runs", summary: "Run a program", description: runDescription,
			scopes: runs, body: jsonBody[sandbox.Spec]("The program, its files and its limits."), maxBody: s.o.MaxRunBody,
			headers: []headerParam{{"Idempotency-Key", "Names this request, at most 255 printable characters, so that sending it again does not run it again."}},
			params: []param{
				{name: "wait", kind: kindBool, fallback: "true", doc: "Answer with the result; false: as soon as the run is recorded."},
				{name: "stdin", kind: kindBool, fallback: "false", doc: "Keep the program's standard input open; only with Accept: text/event-stream, or ?wait=false."},
			},
			answers: []reply{
				jsonReply[sandbox.Result](http.StatusOK, "What became of the program."),
				{http.StatusOK, typeEvents, reflect.TypeFor[RunEvent](), ""},
				jsonReply[Run](http.StatusAccepted, "The run is recorded and goes on by itself (wait=false)."),
			},
			errors:  []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage, http.StatusNotAcceptable},
			example: `curl -s $SERVER/v1/runs -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"language": "python", "code": "print(6*7)"}'`,
			handle:  (*call).createRun,
		},
		{
			method: http.MethodGet, path: "/v1/runs", id: "listRuns", tag: "Runs", summary: "List runs",
			description: "Those that are queued and running, and those that have finished, without their results. A page of queued or of running ones may be shorter than limit, with a next.",
			scopes:      reads, params: append(listParams("status", words(sandbox.StatusSucceeded, sandbox.StatusFailed, sandbox.StatusKilled, sandbox.StatusError), "Only runs that ended so."),
				param{name: "state", kind: kindText, words: words(sandbox.RunStates()...), many: true, doc: "Only runs in this state."},
				param{name: "language", kind: kindText, many: true, doc: "Only runs in this language."},
				param{name: "since", kind: kindTime, doc: "Only runs that were asked for at this time or later."},
				param{name: "before", kind: kindTime, doc: "Only runs that were asked for before this time."}),
			answers: []reply{jsonReply[List[Run]](http.StatusOK, "A page of runs.")},
			errors:  []int{http.StatusTooManyRequests},
			example: `curl -s "$SERVER/v1/runs?state=running&state=queued&limit=10" -H "Authorization: Bearer $KEY"`,
			handle:  (*call).listRuns,
		},
		{
			method: http.MethodGet, path: "/v1/runs/{run}", id: "getRun", tag: "Runs", summary: "Get a run", description: "With its result once it has ended.",
			scopes: reads, answers: []reply{jsonReply[Run](http.StatusOK, "The run.")}, errors: []int{http.StatusNotFound, http.StatusTooManyRequests},
			example: `curl -s $SERVER/v1/runs/$RUN -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).runID, (*call).getRun),
		},
	}
	return append(append(all, s.runLifeRoutes()...), s.runStdinRoutes()...)
}

// words are the accepted values of a parameter.
func words[T ~string](all ...T) []string {
	var out []string
	for _, w := range all {
		out = append(out, string(w))
	}
	return out
}

// listParams are the parameters of every list; filter is what objects of that
// kind are chosen by.
func listParams(filter string, accepted []string, doc string) []param {
	return []param{
		{name: "limit", kind: kindInt, min: 1, max: 1000, fallback: "100", doc: "Objects in one page."},
		{name: "cursor", kind: kindText, doc: "The next of the page before."},
		{name: "order", kind: kindText, words: []string{"newest", "oldest"}, fallback: "newest", doc: "Which come first."},
		{name: filter, kind: kindText, words: accepted, many: true, doc: doc},
		{name: "metadata", kind: kindText, many: true, doc: "Only objects whose metadata has this pair, written KEY=VALUE."},
	}
}

// listQuery is what the parameters of a list ask for.
func (c *call) listQuery() (records.Query, error) {
	q := records.Query{Oldest: c.query.text("order") == "oldest", Limit: int(c.query.int("limit")), Cursor: c.query.text("cursor"), Metadata: map[string]string{}}
	for _, pair := range c.query["metadata"] {
		k, v, ok := strings.Cut(pair, "=")
		if _, twice := q.Metadata[k]; !ok || k == "" || twice {
			return q, badRequest("metadata", "must be KEY=VALUE, each key once", "")
		}
		q.Metadata[k] = v
	}
	return q, nil
}

func (c *call) listRuns() error {
	q, err := c.listQuery()
	if err != nil {
		return err
	}
	for _, status := range c.query["status"] {
		q.Statuses = append(q.Statuses, sandbox.Status(status))
	}
	for _, state := range c.query["state"] {
		q.RunStates = append(q.RunStates, sandbox.RunState(state))
	}
	q.Languages, q.Since, q.Before = c.query["language"], c.query.time("since"), c.query.time("before")
	page, err := c.o.Engine.Runs(c.r.Context(), c.tenant(), q)
	return c.ok(list(page, shownRun), err)
}

func (c *call) getRun(id string) error {
	return c.run(c.o.Engine.RunRecord(c.r.Context(), c.tenant(), id))
}

// run answers with a run as it stands, unless there is an error.
func (c *call) run(r records.Run, err error) error { return c.ok(shownRun(r), hide(err)) }

const maxIdempotencyKey = 255

func (c *call) idempotencyKey() (string, error) {
	keys := c.r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", nil
	}
	key := keys[0]
	printable := !strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
	if len(keys) > 1 || key == "" || len(key) > maxIdempotencyKey || !printable {
		return "", badRequest("Idempotency-Key", "must be given once, with 1 to 255 printable characters", "a random UUID is a good one")
	}
	return key, nil
}

func (c *call) createRun() error {
	key, err := c.idempotencyKey()
	if err != nil {
		return err
	}
	open := c.query.bool("stdin")
	detached := !c.query.bool("wait") && len(c.query["wait"]) > 0
	if open && c.wants != typeEvents && !detached {
		return badRequest("stdin", "needs the answer as events: the first one has the id of the run to write to", "send it with: Accept: text/event-stream")
	}
	var spec sandbox.Spec
	done, err := c.decode(c.o.MaxRunBody, &spec)
	if err != nil {
		return err
	}
	// Files that were not declared would be gone with the sandbox anyway.
	req := runs.Request{Spec: spec, Tenant: c.tenant(), IdempotencyKey: key, NoArtifacts: true, OpenStdin: open}
	if detached {
		req.Released = done
		return c.startRun(req)
	}
	defer done()
	if c.wants == typeEvents {
		return c.streamRun(c.r.Context(), req)
	}
	result, err := c.o.Engine.Run(c.r.Context(), req)
	if err != nil {
		return err
	}
	return c.ok(c.hold(result))
}

// streamRun answers with events. The guest runs no faster than the client
// reads. A client that does not read at all cancels its run, or, where it has
// an idempotency key, loses the stream but not the run.
func (c *call) streamRun(ctx context.Context, req runs.Request) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := c.newEvents(c.w)
	defer e.end()
	lost := cancel
	if req.IdempotencyKey != "" {
		lost = func() {}
		e.endWith(c.r.Context(), func() sandbox.ErrorBody { // the run goes on, its stream does not
			return sandbox.ErrorBody{Error: c.shown(c.r, context.Cause(c.r.Context()))}
		})
	}
	req.Started = func(id string) {
		if e.send("start", "", started{id}) != nil {
			lost()
		}
	}
	req.Pending = func(a sandbox.Approval) {
		if e.send(string(sandbox.RunPending), "", a) != nil {
			lost()
		}
	}
	stdout, stderr := &runStream{e: e, cut: splitter{stream: "stdout"}, lost: lost}, &runStream{e: e, cut: splitter{stream: "stderr"}, lost: lost}
	req.Streams = execution.Streams{Stdout: stdout, Stderr: stderr}
	result, err := c.o.Engine.Run(ctx, req)
	if err != nil {
		return c.cutOff(e, err)
	}
	stdout.finish()
	stderr.finish()
	if !e.started() { // it is the answer to an earlier request
		req.Started(result.ID)
	}
	if result, err = c.hold(result); err != nil {
		return c.cutOff(e, err)
	}
	return e.send("result", "", result)
}

// runStream turns output into events. It never fails, because the program must
// not notice that nobody reads.
type runStream struct {
	e    *events
	cut  splitter
	lost func()
}

func (s *runStream) Write(b []byte) (int, error) {
	if event, ok := s.cut.take(b); ok {
		s.send(event)
	}
	return len(b), nil
}

func (s *runStream) finish() {
	if event, ok := s.cut.rest(); ok {
		s.send(event)
	}
}

func (s *runStream) send(event OutputEvent) {
	if s.e.send(event.Stream, "", RunEvent{Text: event.Text, Base64: event.Base64, Offset: event.Offset}) != nil {
		s.lost()
	}
}
