package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"pinfold/internal/audit"
	"pinfold/sandbox"
)

const witnessDescription = `Tells a server that is a witness of another's audit log (audit.witness_for in its configuration) of a checkpoint. It needs no key: only what the log's key has signed is taken.

The body is the signed checkpoint, or, as in C2SP's tlog-witness, a line "old N", the lines of a consistency proof from N entries on, an empty line and the checkpoint. The first checkpoint of a log is taken as it is, and each later one with a proof from the last one on; without it the answer is 409 with the media type text/x.tlog.size and the number of entries that were seen, from which the proof has to be. A checkpoint that contradicts what was seen is refused as "conflict", and both are kept as evidence. The witness signs nothing.`

func (s *server) witnessRoutes() []route {
	return []route{{
		method: http.MethodPost, path: "/v1/witness/checkpoints", id: "witnessCheckpoint", tag: "Audit", summary: "Tell a witness of an audit log's head", description: witnessDescription,
		body: body{raw: "text/plain", doc: "The checkpoint, with or without a proof; at most 8 KiB."}, answers: []reply{{http.StatusNoContent, "", nil, "It is kept, on the disk."}},
		errors:  []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests},
		example: `curl -s $SERVER/v1/witness/checkpoints -H "Content-Type: text/plain" --data-binary @checkpoint`,
		handle:  (*call).witnessCheckpoint,
	}}
}

func (c *call) witnessCheckpoint() error {
	if c.o.Watcher == nil {
		return &sandbox.Error{Code: sandbox.CodeNotFound, Message: "this server is no witness", Hint: "audit.witness_for in its configuration lists the logs that it watches"}
	}
	if c.r.ContentLength > audit.MaxTold {
		return tooMuchTold()
	}
	in := c.timed(c.w, c.r.Body)
	in.rate, in.begun = minBodyRate, time.Now()
	told, err := io.ReadAll(io.LimitReader(in, audit.MaxTold+1))
	if err != nil {
		return readError(in.reason(err))
	}
	if len(told) > audit.MaxTold {
		return tooMuchTold()
	}
	err = c.o.Watcher.Add(told)
	var from *audit.SizeError
	var known *sandbox.Error
	switch {
	case errors.As(err, &from):
		c.w.Header().Set("Content-Type", audit.SizeType)
		c.w.WriteHeader(http.StatusConflict)
		_, err = io.WriteString(c.w, strconv.FormatInt(from.Size, 10)+"\n")
		return err
	case errors.Is(err, audit.ErrUnproven) && errors.As(err, &known):
		return &statusError{http.StatusUnprocessableEntity, known}
	}
	return c.done(err)
}

func tooMuchTold() error {
	return &sandbox.Error{Code: sandbox.CodeTooLarge, Message: "the body is larger than " + sandbox.FormatSize(audit.MaxTold), Hint: "send one checkpoint"}
}
