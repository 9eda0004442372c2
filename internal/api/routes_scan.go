package api

import (
	"net/http"

	"pinfold/sandbox"
)

const scanDescription = `Looks at a program and runs nothing of it: calls to the network, files outside the working directory, code that is hidden, and the like, by rules that "pinfold scan --rules" lists. It is advice: what holds a program is the sandbox. Python is read in a sandbox, which waits for room as a run does. A run with "scan": true has the same in its findings.`

func (s *server) scanRoutes() []route {
	return []route{{
		method: http.MethodPost, path: "/v1/scan", id: "scanProgram", tag: "Runs", summary: "Look at a program before it runs", description: scanDescription,
		scopes: []string{scopeRun}, body: jsonBody[sandbox.ScanRequest]("The program and its language."), maxBody: s.o.MaxRunBody,
		answers: []reply{jsonReply[sandbox.ScanReport](http.StatusOK, "What was seen.")},
		errors:  []int{http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable},
		example: `curl -s $SERVER/v1/scan -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"language": "bash", "code": "rm -rf /"}'`,
		handle:  (*call).scan,
	}}
}

func (c *call) scan() error {
	var req sandbox.ScanRequest
	done, err := c.decode(c.o.MaxRunBody, &req)
	if err != nil {
		return err
	}
	defer done()
	report, err := c.o.Engine.Scan(c.r.Context(), c.tenant(), req)
	return c.ok(report, err)
}
