package api

import (
	"net/http"

	"pinfold/sandbox"
)

// runStdinRoutes are about the standard input of runs that go on.
func (s *server) runStdinRoutes() []route {
	runs := []string{scopeRun}
	return []route{
		{
			method: http.MethodPost, path: runPath + "/stdin", id: "writeRunStdin", tag: "Runs", summary: "Write to a run's standard input",
			description: "Of a run that was started with ?stdin=true and goes on. The body goes in as it comes, no faster than the program reads. The input stays open.", scopes: runs,
			body: body{raw: typeBytes, doc: "The bytes."}, answers: []reply{jsonReply[written](http.StatusOK, "How many bytes went in.")}, errors: []int{http.StatusNotFound, http.StatusConflict},
			example: `printf 'hello\n' | curl -s $SERVER/v1/runs/$RUN/stdin -H "Authorization: Bearer $KEY" -H "Content-Type: application/octet-stream" --data-binary @-`,
			handle:  on((*call).runID, (*call).writeRunStdin), long: true,
		},
		{
			method: http.MethodDelete, path: runPath + "/stdin", id: "closeRunStdin", tag: "Runs", summary: "Close a run's standard input",
			scopes: runs, answers: []reply{{http.StatusNoContent, "", nil, "It is closed."}}, errors: []int{http.StatusNotFound, http.StatusConflict},
			example: `curl -s -X DELETE $SERVER/v1/runs/$RUN/stdin -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).runID, (*call).closeRunStdin),
		},
	}
}

func (c *call) writeRunStdin(id string) error {
	in := c.timed(c.w, c.r.Body)
	n, err := c.o.Engine.WriteRunStdin(c.r.Context(), c.tenant(), id, in)
	return c.ok(written{n}, in.reason(openStdin(err)))
}

func (c *call) closeRunStdin(id string) error {
	return c.done(openStdin(c.o.Engine.CloseRunStdin(c.r.Context(), c.tenant(), id)))
}

// openStdin says in HTTP's words which runs have a standard input to write to.
func openStdin(err error) error {
	if e := sandbox.AsError(err); e != nil && e.Code == sandbox.CodeConflict {
		return e.WithHint("only a run that was started with ?stdin=true has one to write to, until it ends")
	}
	return hide(err)
}
