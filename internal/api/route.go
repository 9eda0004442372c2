package api

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"

	"pinfold/internal/access"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/records"
)

// route is one line of the table: what people may send and get, who may, and
// the handler. Everything that is documented comes from here.
type route struct {
	method, path string
	id           string // the operation's name, for generated clients
	tag          string
	summary      string
	description  string
	scopes       []string // any of them; none: the route needs no key
	params       []param
	headers      []headerParam
	body         body
	maxBody      int64 // of a JSON body; 0: Options.MaxBody
	answers      []reply
	errors       []int // statuses of errors besides those that every route has
	head         bool  // HEAD works too
	long         bool  // lasts as long as the client likes, even without events
	example      string
	hidden       bool // not in the document: a courtesy for people with a browser
	handle       func(c *call) error
}

// body is what a request carries.
type body struct {
	json reflect.Type // nil: no JSON
	raw  string       // the media type of a stream
	doc  string
}

// reply is one kind of success.
type reply struct {
	status    int
	mediaType string
	json      reflect.Type // of JSON, or of the data of events
	doc       string
}

// headerParam is a header that means something to the route.
type headerParam struct{ name, doc string }

func jsonBody[T any](doc string) body { return body{json: reflect.TypeFor[T](), doc: doc} }

func jsonReply[T any](status int, doc string) reply {
	return reply{status: status, mediaType: typeJSON, json: reflect.TypeFor[T](), doc: doc}
}

// call is one request on its route.
type call struct {
	*server

	w     http.ResponseWriter
	r     *http.Request
	who   access.Principal
	query values
	// wants is the media type that was chosen among the answers'.
	wants string
	room  *bodyShare // of the memory for answers
}

// register makes handlers from the table.
func (s *server) register(routes []route) {
	for _, rt := range routes {
		if rt.handle == nil { // reached without the mux
			continue
		}
		s.heads[rt.method+" "+rt.path] = rt.head
		s.mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) { s.serve(rt, w, r) })
	}
}

// serve checks what the table says about a request, then lets it through.
func (s *server) serve(rt route, w http.ResponseWriter, r *http.Request) {
	c := &call{server: s, w: w, r: r}
	if err := c.admit(rt); err != nil {
		s.fail(w, r, err)
		return
	}
	defer c.holdAnswer()()
	if rt.long || c.wants == typeEvents {
		ctx, cancel := context.WithCancelCause(c.r.Context())
		defer cancel(nil)
		c.r = c.r.WithContext(ctx)
		defer s.watchKey(c.r, rt.scopes, cancel)()
	}
	if err := rt.handle(c); err != nil {
		err = c.why(err)
		if a, ok := w.(*answer); ok && a.wrote {
			s.o.Log.DebugContext(r.Context(), "answer cut off", "request", requestID(r.Context()), "error", err.Error())
			panic(http.ErrAbortHandler) // half an answer must not look like a whole one
		}
		s.fail(w, r, err)
	}
}

// why is the reason of a failure: that the key was refused meanwhile explains
// every other.
func (c *call) why(err error) error {
	if cause := context.Cause(c.r.Context()); cause != nil && refusesKey(cause) {
		return cause
	}
	return err
}

func (c *call) admit(rt route) error {
	var err error
	if len(rt.scopes) > 0 {
		if c.who, err = c.identify(c.r); err != nil {
			return err
		}
		if err = allow(c.who, rt.scopes); err != nil {
			return err
		}
		ctx := admission.Narrow(records.WithKey(c.r.Context(), c.who.KeyID), c.who.Allow)
		c.r = c.r.WithContext(admission.Confine(ctx, c.who.Profiles))
	}
	if c.query, err = parseQuery(c.r.URL.RawQuery, rt.params); err != nil {
		return err
	}
	if c.wants, err = choose(c.r, offers(rt.answers)); err != nil {
		return err
	}
	if rt.body == (body{}) && c.r.ContentLength != 0 {
		return c.drain()
	}
	return nil
}

// drain reads a body that the route has no use for. Left where it is, it would
// hold up the answer.
func (c *call) drain() error {
	if c.r.ContentLength > maxUnwanted {
		return bodyTooLarge(maxUnwanted)
	}
	n, err := io.Copy(io.Discard, io.LimitReader(c.timed(c.w, c.r.Body), maxUnwanted+1))
	switch {
	case err != nil:
		return readError(err)
	case n > maxUnwanted:
		return bodyTooLarge(maxUnwanted)
	}
	return nil
}

// maxUnwanted is how much of a body is tolerated where there should be none.
const maxUnwanted = 64 << 10

func offers(answers []reply) []string {
	var all []string
	for _, a := range answers {
		if a.mediaType != "" {
			all = append(all, a.mediaType)
		}
	}
	return all
}

// tenant is whose objects this request may see.
func (c *call) tenant() string { return c.who.Tenant }

// decode reads the JSON body. The returned function gives its memory back.
func (c *call) decode(limit int64, v any) (func(), error) {
	return c.readJSON(c.w, c.r, c.tenant(), cmp.Or(limit, c.o.MaxBody), v)
}

// reply answers with JSON.
func (c *call) reply(status int, v any) error {
	writeJSON(c.w, status, v)
	return nil
}

// ok answers with a value, unless there is an error.
func (c *call) ok(v any, err error) error {
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, v)
}

// done answers that it is done, unless there is an error.
func (c *call) done(err error) error {
	if err == nil {
		c.w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// on makes the handler of a route about an object of the path: a sandbox, a place
// or a process in one, a run. That it is not there is said before anything else.
func on[T any](find func(*call) (T, error), do func(*call, T) error) func(*call) error {
	return func(c *call) error {
		object, err := find(c)
		if err != nil {
			return err
		}
		return do(c, object)
	}
}

// withBody is on for a route that takes a JSON body, which do has until it returns.
func withBody[T, B any](find func(*call) (T, error), do func(*call, T, *B) error) func(*call) error {
	return on(find, func(c *call, object T) error {
		var b B
		done, err := c.decode(0, &b)
		if err != nil {
			return err
		}
		defer done()
		return do(c, object, &b)
	})
}

// object takes an id from the path. One of another form is not found, and is
// never looked up.
func (c *call) object(name, kind string) (string, error) {
	id := c.r.PathValue(name)
	if !c.objectID.MatchString(id) || !strings.HasPrefix(id, kind) {
		return "", notFound()
	}
	return id, nil
}

// sandbox is the living sandbox of the path.
func (c *call) sandbox() (*living.Sandbox, error) {
	id, err := c.object("id", "sbx_")
	if err != nil {
		return nil, err
	}
	s, err := c.o.Engine.Sandbox(c.tenant(), id)
	return s, hide(err)
}

// runID is the id of the run of the path.
func (c *call) runID() (string, error) { return c.object("run", "run_") }

// process is the process of the path, in its sandbox.
func (c *call) process() (*living.Process, error) {
	s, err := c.sandbox()
	if err != nil {
		return nil, err
	}
	id, err := c.object("process", "prc_")
	if err != nil {
		return nil, err
	}
	p, err := s.Process(id)
	return p, hide(err)
}
