package api

import (
	"net/http"

	"pinfold/internal/engine/living"
	"pinfold/sandbox"
)

func (s *server) snapshotRoutes() []route {
	scopes, reads := []string{scopeSandbox}, []string{scopeSandbox, scopeRead}
	refusals := []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage}
	return []route{
		{
			method: http.MethodPost, path: "/v1/sandboxes/{id}/snapshots", id: "createSnapshot", tag: "Snapshots", summary: "Take a snapshot of a sandbox",
			description: "Keeps what the sandbox's places hold at this moment: its home, /tmp and the other places where programs can write. The sandbox stands still meanwhile, and goes on at once; what is asked of it meanwhile waits. \"holds\" says what is in the snapshot: \"files\" alone means that processes do not go on in what is made of it; that of a virtual machine holds \"memory\", too, and they do. It outlives the sandbox, and the server, until it expires.",
			scopes:      scopes, body: jsonBody[sandbox.TakeSnapshot]("A name for people, how long it is kept, notes; {} for the defaults."),
			answers: []reply{jsonReply[sandbox.Snapshot](http.StatusCreated, "The snapshot. Location says where it is.")},
			errors:  refusals,
			example: `curl -s $SERVER/v1/sandboxes/$ID/snapshots -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"name": "before the upgrade"}'`,
			handle:  withBody((*call).sandbox, (*call).createSnapshot),
		},
		{
			method: http.MethodPost, path: "/v1/sandboxes/{id}/fork", id: "forkSandbox", tag: "Snapshots", summary: "Fork a sandbox",
			description: "Makes sandboxes that begin with what this one holds at this moment, all of them or none, and keeps no snapshot. They are made as it was made; each goes its own way. As with a snapshot, only files go over, but of a virtual machine also what runs: its processes go on in each of them, under other ids, with what they print from then on.",
			scopes:      scopes, body: jsonBody[sandbox.ForkSandbox]("How many, and how long they live; {} for one."),
			answers: []reply{jsonReply[List[sandbox.Info]](http.StatusCreated, "The new sandboxes.")},
			errors:  refusals,
			example: `curl -s $SERVER/v1/sandboxes/$ID/fork -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"count": 2}'`,
			handle:  withBody((*call).sandbox, (*call).forkSandbox),
		},
		{
			method: http.MethodGet, path: "/v1/snapshots", id: "listSnapshots", tag: "Snapshots", summary: "List snapshots", scopes: reads,
			description: "All that the tenant has, the oldest first; it may not have more than a few hundred.",
			answers:     []reply{jsonReply[List[sandbox.Snapshot]](http.StatusOK, "The snapshots.")},
			example:     `curl -s $SERVER/v1/snapshots -H "Authorization: Bearer $KEY"`,
			handle: func(c *call) error {
				all, err := c.o.Engine.Snapshots(c.r.Context(), c.tenant())
				return c.ok(items(all), err)
			},
		},
		{
			method: http.MethodGet, path: "/v1/snapshots/{snapshot}", id: "getSnapshot", tag: "Snapshots", summary: "Get a snapshot", scopes: reads,
			answers: []reply{jsonReply[sandbox.Snapshot](http.StatusOK, "The snapshot.")}, errors: []int{http.StatusNotFound},
			example: `curl -s $SERVER/v1/snapshots/$SNAPSHOT -H "Authorization: Bearer $KEY"`,
			handle: func(c *call) error {
				id, err := c.snapshotID()
				if err != nil {
					return err
				}
				info, err := c.o.Engine.Snapshot(c.r.Context(), c.tenant(), id)
				return c.ok(info, hideSnapshot(err))
			},
		},
		{
			method: http.MethodDelete, path: "/v1/snapshots/{snapshot}", id: "removeSnapshot", tag: "Snapshots", summary: "Remove a snapshot", scopes: scopes,
			description: "Sandboxes that were made of it live on.",
			answers:     []reply{{http.StatusNoContent, "", nil, "It is gone."}}, errors: []int{http.StatusNotFound},
			example: `curl -s -X DELETE $SERVER/v1/snapshots/$SNAPSHOT -H "Authorization: Bearer $KEY"`,
			handle: func(c *call) error {
				id, err := c.snapshotID()
				if err != nil {
					return err
				}
				return c.done(hideSnapshot(c.o.Engine.RemoveSnapshot(c.r.Context(), c.tenant(), id)))
			},
		},
	}
}

func (c *call) createSnapshot(s *living.Sandbox, t *sandbox.TakeSnapshot) error {
	made, err := s.Snapshot(c.r.Context(), *t)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/snapshots/"+made.ID)
	return c.reply(http.StatusCreated, made)
}

func (c *call) forkSandbox(s *living.Sandbox, f *sandbox.ForkSandbox) error {
	made, err := c.o.Engine.Fork(c.r.Context(), s, *f)
	if err != nil {
		return err
	}
	all := make([]sandbox.Info, 0, len(made))
	for _, fork := range made {
		all = append(all, fork.Info())
	}
	return c.reply(http.StatusCreated, items(all))
}

// snapshotID is the id of the snapshot of the path.
func (c *call) snapshotID() (string, error) {
	id, err := c.object("snapshot", "snp_")
	return id, hideSnapshot(err)
}

// hideSnapshot is hide where the object is a snapshot, which has a list of its own.
func hideSnapshot(err error) error {
	if e := sandbox.AsError(err); e != nil && e.Code == sandbox.CodeNotFound {
		return (&sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such object"}).WithAdvice(sandbox.Advise("list yours with %s", sandbox.Call(sandbox.CallListSnapshots)))
	}
	return err
}
