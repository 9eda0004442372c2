package api

import (
	"context"
	"net/http"
	"reflect"

	"pinfold/internal/engine/living"
	"pinfold/sandbox"
)

// extendBody asks for more time.
type extendBody struct {
	TTLMS int64 `json:"ttl_ms"`
}

func (s *server) sandboxRoutes() []route {
	scopes, reads := []string{scopeSandbox}, []string{scopeSandbox, scopeRead}
	return []route{
		{
			method: http.MethodPost, path: "/v1/sandboxes", id: "createSandbox", tag: "Sandboxes", summary: "Create a sandbox",
			description: "Answers when the sandbox can be used. It waits its turn when the server is full.",
			scopes:      scopes, body: jsonBody[sandbox.Create]("What it is made of and how long it lives; {} for the defaults."),
			answers: []reply{jsonReply[sandbox.Info](http.StatusCreated, "The sandbox. Location says where it is.")},
			errors:  []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage},
			example: `curl -s $SERVER/v1/sandboxes -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"ttl_ms": 600000}'`,
			handle:  (*call).createSandbox,
		},
		{
			method: http.MethodGet, path: "/v1/sandboxes", id: "listSandboxes", tag: "Sandboxes", summary: "List sandboxes",
			description: "Ended ones are kept for a while.", scopes: reads,
			params:  listParams("state", words(sandbox.States()...), "Only sandboxes in this state."),
			answers: []reply{jsonReply[List[sandbox.Info]](http.StatusOK, "A page of sandboxes.")},
			errors:  []int{http.StatusTooManyRequests},
			example: `curl -s "$SERVER/v1/sandboxes?state=running" -H "Authorization: Bearer $KEY"`,
			handle:  (*call).listSandboxes,
		},
		{
			method: http.MethodGet, path: "/v1/sandboxes/{id}", id: "getSandbox", tag: "Sandboxes", summary: "Get a sandbox",
			description: "Also one that has ended, with the cause of its end.", scopes: reads,
			answers: []reply{jsonReply[sandbox.Info](http.StatusOK, "The sandbox.")},
			example: `curl -s $SERVER/v1/sandboxes/$ID -H "Authorization: Bearer $KEY"`,
			handle:  (*call).getSandbox,
		},
		{
			method: http.MethodDelete, path: "/v1/sandboxes/{id}", id: "destroySandbox", tag: "Sandboxes", summary: "Destroy a sandbox",
			description: "Answers when nothing of it is left on the host. Destroying one that has ended changes nothing.", scopes: scopes,
			answers: []reply{jsonReply[sandbox.Info](http.StatusOK, "The sandbox as it ended.")},
			example: `curl -s -X DELETE $SERVER/v1/sandboxes/$ID -H "Authorization: Bearer $KEY"`,
			handle:  (*call).destroySandbox,
		},
		{
			method: http.MethodPost, path: "/v1/sandboxes/{id}/extend", id: "extendSandbox", tag: "Sandboxes", summary: "Give a sandbox more time",
			description: "It lives ttl_ms from now.", scopes: scopes, body: jsonBody[extendBody]("Milliseconds to live from now."),
			answers: []reply{jsonReply[sandbox.Info](http.StatusOK, "The sandbox.")}, errors: []int{http.StatusConflict},
			example: `curl -s $SERVER/v1/sandboxes/$ID/extend -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"ttl_ms": 600000}'`,
			handle:  withBody((*call).sandbox, (*call).extendSandbox),
		},
		{
			method: http.MethodPatch, path: "/v1/sandboxes/{id}/network", id: "changeSandboxNetwork", tag: "Sandboxes", summary: "Change what a sandbox can reach",
			description: "At once: when it answers, connections and requests that are not declared any more are cut, and new ones are denied. Either network takes the place of all that is declared, or deny takes names away and allow adds endpoints to what is left. What the sandbox was made with it can always have again, with a key that may declare it; what is beyond that has to be allowed as for a new one, and be something for which the sandbox has a listener. Also while it is paused.",
			scopes:      scopes, body: jsonBody[sandbox.NetworkChange]("What is to change."),
			answers: []reply{jsonReply[sandbox.Info](http.StatusOK, "The sandbox; declared is what it can reach now.")},
			errors:  []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
			example: `curl -s -X PATCH $SERVER/v1/sandboxes/$ID/network -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"deny": ["api.example.com"]}'`,
			handle: withBody((*call).sandbox, func(c *call, s *living.Sandbox, b *sandbox.NetworkChange) error {
				return c.ok(s.ChangeNetwork(c.r.Context(), *b))
			}),
		},
		{
			method: http.MethodGet, path: "/v1/sandboxes/{id}/network/events", id: "watchSandboxNetwork", tag: "Sandboxes", summary: "Follow what a sandbox reaches",
			description: "A stream of events: network, whose data is what has gone on with the declared endpoints since the sandbox was made, at once and after that when it has changed, at most four times a second; and end when the sandbox has ended. A comment comes every 15 seconds. To follow is no use of the sandbox.",
			scopes:      reads, answers: []reply{{http.StatusOK, typeEvents, reflect.TypeFor[sandbox.NetworkUse](), "The events."}},
			errors:  []int{http.StatusConflict},
			example: `curl -sN $SERVER/v1/sandboxes/$ID/network/events -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).sandbox, (*call).watchNetwork),
		},
		{
			method: http.MethodPost, path: "/v1/sandboxes/{id}/pause", id: "pauseSandbox", tag: "Sandboxes", summary: "Pause a sandbox",
			description: "Answers when nothing in it runs any more. It keeps its memory and its files, and whatever else is asked of it is refused until it is resumed. Its time to live goes on; its idle time and the wall time of its processes stand. It is refused while files are transferred or connections to its ports are open, and where its driver cannot do it. Pausing one that is paused changes nothing.",
			scopes:      scopes,
			answers:     []reply{jsonReply[sandbox.Info](http.StatusOK, "The sandbox.")},
			errors:      []int{http.StatusConflict, http.StatusUnprocessableEntity},
			example:     `curl -s -X POST $SERVER/v1/sandboxes/$ID/pause -H "Authorization: Bearer $KEY"`,
			handle:      changes((*living.Sandbox).Pause),
		},
		{
			method: http.MethodPost, path: "/v1/sandboxes/{id}/resume", id: "resumeSandbox", tag: "Sandboxes", summary: "Resume a sandbox",
			description: "What was paused in it goes on. Resuming one that runs changes nothing.",
			scopes:      scopes,
			answers:     []reply{jsonReply[sandbox.Info](http.StatusOK, "The sandbox.")},
			errors:      []int{http.StatusConflict, http.StatusUnprocessableEntity},
			example:     `curl -s -X POST $SERVER/v1/sandboxes/$ID/resume -H "Authorization: Bearer $KEY"`,
			handle:      changes((*living.Sandbox).Resume),
		},
	}
}

func (c *call) createSandbox() error {
	var create sandbox.Create
	done, err := c.decode(0, &create)
	if err != nil {
		return err
	}
	defer done()
	s, err := c.o.Engine.Create(c.r.Context(), c.tenant(), create)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/sandboxes/"+s.ID())
	return c.reply(http.StatusCreated, s.Info())
}

func (c *call) listSandboxes() error {
	q, err := c.listQuery()
	if err != nil {
		return err
	}
	for _, state := range c.query["state"] {
		q.States = append(q.States, sandbox.State(state))
	}
	page, err := c.o.Engine.Sandboxes(c.r.Context(), c.tenant(), q)
	return c.ok(list(page, func(i sandbox.Info) sandbox.Info { return i }), err)
}

func (c *call) getSandbox() error {
	id, err := c.object("id", "sbx_")
	if err != nil {
		return err
	}
	info, err := c.o.Engine.SandboxInfo(c.r.Context(), c.tenant(), id)
	return c.ok(info, hide(err))
}

func (c *call) destroySandbox() error {
	s, err := c.sandbox()
	if err != nil {
		if sandbox.AsError(err).Code == sandbox.CodeGone {
			return c.getSandbox()
		}
		return err
	}
	return c.ok(s.Destroy(context.WithoutCancel(c.r.Context()))) // half a destruction helps nobody
}

func (c *call) extendSandbox(s *living.Sandbox, b *extendBody) error {
	if err := sandbox.CheckTTL(b.TTLMS); err != nil {
		return err
	}
	return c.ok(s.Extend(b.TTLMS))
}

// changes has a sandbox change its state, and answers with what it is then.
func changes(how func(*living.Sandbox, context.Context) (sandbox.Info, error)) func(*call) error {
	return func(c *call) error {
		s, err := c.sandbox()
		if err != nil {
			return err
		}
		return c.ok(how(s, c.r.Context()))
	}
}

func (c *call) watchNetwork(s *living.Sandbox) error {
	e := c.newEvents(c.w)
	defer e.end()
	err := s.WatchNetwork(c.r.Context(), func(u sandbox.NetworkUse) error { return e.send("network", "", u) })
	if err != nil {
		return c.cutOff(e, err)
	}
	return e.send("end", "", struct{}{})
}
