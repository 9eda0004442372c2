package api

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"pinfold/internal/engine/living"
	"pinfold/sandbox"
)

type (
	signalBody struct {
		Signal string `json:"signal"`
	}
	// written says how much of a request's body has arrived inside.
	written struct {
		Written int64 `json:"written"`
	}
)

const startDescription = `Answers as soon as the command has started. The process goes on when the client goes away; its limits end it.

With ?wait=true the answer comes when it has ended, with what is kept of its output in stdout and stderr: the last output_bytes of each; stdout_truncated and stderr_truncated say that the beginning is missing. Where you did not wait, GET of the process, or its /wait, gives the same when it has ended, and /stdout, /stderr and /output what it writes meanwhile. With "Accept: text/event-stream" the answer is a stream: start (the Process), stdout and stderr (OutputEvents) and exit (the Process).`

const outputDescription = `A stream of events: stdout and stderr, whose data is an OutputEvent, and at the end exit with the Process. A comment comes every 15 seconds.

A client that was cut off goes on from the byte at which it stopped: with the offsets of the next bytes it wants, or with Last-Event-ID. -1 means the first byte that is still kept: the offset of the first event is then above 0 where the beginning is not. While somebody reads, the process writes no faster than they do; a reader that stops reading is dropped and the process goes on.`

func (s *server) processRoutes() []route {
	return append(s.processLifeRoutes(), s.processStreamRoutes()...)
}

const processPath = "/v1/sandboxes/{id}/processes/{process}"

func (s *server) processLifeRoutes() []route {
	scopes, reads := []string{scopeSandbox}, []string{scopeSandbox, scopeRead}
	return []route{
		{
			method: http.MethodPost, path: "/v1/sandboxes/{id}/processes", id: "startProcess", tag: "Processes", summary: "Start a process",
			description: startDescription, scopes: scopes, body: jsonBody[sandbox.Command]("The command: args or shell."),
			params: []param{{name: "wait", kind: kindBool, fallback: "false", doc: "Answer when the process has ended."}},
			answers: []reply{
				jsonReply[sandbox.Process](http.StatusCreated, "The process has started."),
				jsonReply[sandbox.Process](http.StatusOK, "The process has ended (with wait)."),
				{http.StatusOK, typeEvents, reflect.TypeFor[OutputEvent](), "Or its events."},
			},
			errors:  []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests},
			example: `curl -s "$SERVER/v1/sandboxes/$ID/processes?wait=true" -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"shell": "uname -a"}'`,
			handle:  withBody((*call).sandbox, (*call).startProcess),
		},
		{
			method: http.MethodGet, path: "/v1/sandboxes/{id}/processes", id: "listProcesses", tag: "Processes", summary: "List processes",
			description: "Those that run, and the last that have ended, without their output.", scopes: reads,
			answers: []reply{jsonReply[List[sandbox.Process]](http.StatusOK, "The processes.")},
			example: `curl -s $SERVER/v1/sandboxes/$ID/processes -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).sandbox, (*call).listProcesses),
		},
		{
			method: http.MethodGet, path: processPath, id: "getProcess", tag: "Processes", summary: "Get a process", scopes: reads,
			description: "When it has ended, with what is kept of its output: the last output_bytes of stdout and stderr. Before, /stdout, /stderr and /output have it.",
			answers:     []reply{jsonReply[sandbox.Process](http.StatusOK, "The process.")},
			example:     `curl -s $SERVER/v1/sandboxes/$ID/processes/$PROCESS -H "Authorization: Bearer $KEY"`,
			handle:      on((*call).process, (*call).getProcess),
		},
		{
			method: http.MethodGet, path: processPath + "/wait", id: "waitProcess", tag: "Processes", summary: "Wait for a process", scopes: reads,
			description: "Answers when the process has ended or the time is over; running says which. When it has ended, the answer has what is kept of its output.",
			params:      []param{{name: "timeout_ms", kind: kindInt, min: 0, max: maxWaitMS, fallback: "60000", doc: "Milliseconds to wait at most."}},
			answers:     []reply{jsonReply[sandbox.Process](http.StatusOK, "The process.")},
			example:     `curl -s "$SERVER/v1/sandboxes/$ID/processes/$PROCESS/wait?timeout_ms=10000" -H "Authorization: Bearer $KEY"`,
			handle:      on((*call).process, (*call).waitProcess),
		},
		{
			method: http.MethodPost, path: processPath + "/signal", id: "signalProcess", tag: "Processes", summary: "Send a signal",
			description: "To the process and those that it started.", scopes: scopes, body: jsonBody[signalBody](`The signal: "SIGTERM", "TERM" or "15".`),
			answers: []reply{{http.StatusNoContent, "", nil, "It was sent."}}, errors: []int{http.StatusConflict},
			example: `curl -s $SERVER/v1/sandboxes/$ID/processes/$PROCESS/signal -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"signal": "TERM"}'`,
			handle:  withBody((*call).process, (*call).signalProcess),
		},
		{
			method: http.MethodPost, path: processPath + "/resize", id: "resizeProcess", tag: "Processes", summary: "Resize a terminal",
			scopes: scopes, body: jsonBody[sandbox.Terminal]("The new size in characters."),
			answers: []reply{{http.StatusNoContent, "", nil, "It has that size."}}, errors: []int{http.StatusConflict},
			example: `curl -s $SERVER/v1/sandboxes/$ID/processes/$PROCESS/resize -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"cols": 120, "rows": 40}'`,
			handle:  withBody((*call).process, (*call).resizeProcess),
		},
	}
}

// maxWaitMS bounds one wait: an hour. Who wants longer asks again.
const maxWaitMS = 3600 * 1000

func (s *server) processStreamRoutes() []route {
	scopes, reads := []string{scopeSandbox}, []string{scopeSandbox, scopeRead}
	offset := param{name: "offset", kind: kindInt, min: -1, max: maxOffset, fallback: "-1", doc: "The first byte wanted; -1: the first that is still kept."}
	named := func(name string) param { p := offset; p.name = name; return p }
	streams := []route{
		{
			method: http.MethodGet, path: processPath + "/output", id: "streamOutput", tag: "Processes", summary: "Follow the output as events",
			description: outputDescription, scopes: reads, params: []param{named("stdout"), named("stderr")},
			headers: []headerParam{{"Last-Event-ID", "The id of the last event that came; it wins over the offsets."}},
			answers: []reply{{http.StatusOK, typeEvents, reflect.TypeFor[OutputEvent](), "The events."}},
			example: `curl -sN "$SERVER/v1/sandboxes/$ID/processes/$PROCESS/output?stdout=0&stderr=0" -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).process, (*call).streamOutput),
		},
		{
			method: http.MethodPost, path: processPath + "/stdin", id: "writeStdin", tag: "Processes", summary: "Write to the standard input",
			description: "The body goes in as it comes, no faster than the program reads. The input stays open.", scopes: scopes,
			body: body{raw: typeBytes, doc: "The bytes."}, answers: []reply{jsonReply[written](http.StatusOK, "How many bytes went in.")}, errors: []int{http.StatusConflict},
			example: `printf 'hello\n' | curl -s $SERVER/v1/sandboxes/$ID/processes/$PROCESS/stdin -H "Authorization: Bearer $KEY" -H "Content-Type: application/octet-stream" --data-binary @-`,
			handle:  on((*call).process, (*call).writeStdin), long: true,
		},
		{
			method: http.MethodDelete, path: processPath + "/stdin", id: "closeStdin", tag: "Processes", summary: "Close the standard input",
			scopes: scopes, answers: []reply{{http.StatusNoContent, "", nil, "It is closed."}}, errors: []int{http.StatusConflict},
			example: `curl -s -X DELETE $SERVER/v1/sandboxes/$ID/processes/$PROCESS/stdin -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).process, (*call).closeStdin),
		},
		{
			method: http.MethodGet, path: processPath + "/terminal", id: "attachTerminal", tag: "Processes", summary: "Attach to a terminal (WebSocket)",
			description: terminalDescription, scopes: scopes, params: []param{offset},
			answers: []reply{{http.StatusSwitchingProtocols, "", nil, "A WebSocket."}}, errors: []int{http.StatusConflict, http.StatusUpgradeRequired},
			handle: on((*call).process, (*call).attachTerminal), long: true,
		},
	}
	for i, name := range []string{"stdout", "stderr"} {
		stream := uint8(1 + i) //nolint:gosec // one of two
		streams = append(streams, route{
			method: http.MethodGet, path: processPath + "/" + name, id: map[string]string{"stdout": "readStdout", "stderr": "readStderr"}[name],
			tag: "Processes", summary: "Follow " + name + " as bytes", scopes: reads, params: []param{offset},
			description: "The bytes as they come, until the process has ended. X-Output-Offset says where the first one stands: above 0 when you asked for what is kept and the beginning is not.",
			answers:     []reply{{http.StatusOK, typeBytes, nil, "The bytes."}},
			example:     `curl -sN "$SERVER/v1/sandboxes/$ID/processes/$PROCESS/` + name + `?offset=0" -H "Authorization: Bearer $KEY"`,
			handle:      on((*call).process, func(c *call, p *living.Process) error { return c.rawOutput(p, stream) }), long: true,
		})
	}
	return streams
}

// maxOffset is beyond any stream.
const maxOffset = 1 << 62

func (c *call) startProcess(s *living.Sandbox, command *sandbox.Command) error {
	switch {
	case c.wants == typeEvents:
		return c.streamProcess(s, *command)
	case c.query.bool("wait"):
		return c.ok(s.Exec(c.r.Context(), *command))
	}
	p, err := s.Start(c.r.Context(), *command)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/sandboxes/"+s.ID()+"/processes/"+p.ID())
	return c.reply(http.StatusCreated, p.Info())
}

func (c *call) listProcesses(s *living.Sandbox) error { return c.ok(items(s.Processes()), nil) }

func (c *call) getProcess(p *living.Process) error { return c.ok(p.InfoWithOutput(), nil) }

func (c *call) waitProcess(p *living.Process) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), time.Duration(c.query.int("timeout_ms"))*time.Millisecond)
	defer cancel()
	if _, err := p.Wait(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return c.reply(http.StatusOK, p.InfoWithOutput())
}

func (c *call) signalProcess(p *living.Process, b *signalBody) error {
	return c.done(p.Signal(b.Signal))
}

func (c *call) resizeProcess(p *living.Process, size *sandbox.Terminal) error {
	if err := size.Validate(); err != nil {
		return err
	}
	return c.done(p.Resize(size.Cols, size.Rows))
}

func (c *call) writeStdin(p *living.Process) error {
	in := c.timed(c.w, c.r.Body)
	n, err := p.WriteStdin(c.r.Context(), in)
	return c.ok(written{n}, in.reason(err))
}

func (c *call) closeStdin(p *living.Process) error { return c.done(p.CloseStdin()) }
