package api

import (
	"context"
	"net/http"
	"reflect"

	"pinfold/internal/template/build"
	"pinfold/sandbox"
)

// Builder makes templates of declarations, in the server's own sandboxes.
type Builder func(ctx context.Context, d *build.Declaration, o build.Options) (build.Result, error)

const buildDescription = `Makes a template of a declaration: a base, packages, files and commands; docs/templates.md says what each field means. Its steps run in sandboxes of the server's. Files beside a declaration are for the command line: here a file has content or content_base64, and packages are those of the indexes that the operator names. One template is built at a time.

With "Accept: text/event-stream" the answer is a stream: progress (BuildEvents), and at the end result (a BuiltTemplate) or error. When the client goes away, the build is cancelled and nothing of it is kept.`

// maxDeclaration bounds a declaration, in bytes.
func (s *server) maxDeclaration() int64 { return min(build.MaxDeclaration, s.o.MaxRunBody) }

func (s *server) templateRoutes(admin []string) []route {
	return []route{{
		method: http.MethodPost, path: "/v1/templates", id: "buildTemplate", tag: "Host", summary: "Build a template", description: buildDescription,
		scopes: admin, body: jsonBody[build.Declaration]("The declaration."), maxBody: s.maxDeclaration(),
		params: []param{{name: "fresh", kind: kindBool, fallback: "false", doc: "Take nothing from earlier builds."}},
		answers: []reply{
			jsonReply[sandbox.BuiltTemplate](http.StatusOK, "The template."),
			{http.StatusOK, typeEvents, reflect.TypeFor[sandbox.BuildEvent](), ""},
		},
		errors:  []int{http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage, http.StatusNotAcceptable},
		example: `curl -sN $SERVER/v1/templates -H "Authorization: Bearer $KEY" -H "Accept: text/event-stream" -H "Content-Type: application/json" -d '{"name": "tools", "base": {"debian": {"suite": "bookworm", "packages": ["python3"]}}}'`,
		handle:  (*call).buildTemplate,
	}}
}

func (c *call) buildTemplate() error {
	var d build.Declaration
	done, err := c.decode(c.maxDeclaration(), &d)
	if err != nil {
		return err
	}
	defer done()
	if err := d.Validate(); err != nil {
		return err
	}
	if c.o.Build == nil {
		return &sandbox.Error{Code: sandbox.CodeConflict, Message: "this server keeps no images", Hint: "build where the images are: pinfold template build FILE"}
	}
	o := build.Options{Fresh: c.query.bool("fresh")}
	if c.wants != typeEvents {
		r, err := c.o.Build(c.r.Context(), &d, o)
		return c.ok(r.Built(), err)
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	e := c.newEvents(c.w)
	defer e.end()
	o.Progress = func(b sandbox.BuildEvent) {
		if e.send("progress", "", b) != nil {
			cancel()
		}
	}
	r, err := c.o.Build(ctx, &d, o)
	if err != nil {
		return c.cutOff(e, err)
	}
	return e.send("result", "", r.Built())
}
