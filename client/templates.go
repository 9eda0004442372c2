package client

import (
	"context"
	"encoding/json"
	"net/http"

	"pinfold/sandbox"
)

// BuildOptions say how a template is made of a declaration.
type BuildOptions struct {
	Fresh    bool                     // take nothing from earlier builds
	Progress func(sandbox.BuildEvent) // is told how far the build is; may be nil
}

// BuildTemplate has the server make a template of a declaration in JSON; docs/templates.md
// says what stands in it. The key needs the scope admin. A step that fails is an error of
// code build_failed whose field is the step's. When ctx ends, the build is cancelled.
func (c *Client) BuildTemplate(ctx context.Context, declaration json.RawMessage, o BuildOptions) (sandbox.BuiltTemplate, error) {
	k := call{method: http.MethodPost, path: []string{"v1", "templates"}, json: declaration}
	if o.Fresh {
		k.query = map[string][]string{"fresh": {"true"}}
	}
	b := &liveBuild{progress: o.Progress}
	err := c.stream(ctx, k, b)
	return b.result, err
}

// liveBuild takes the events of a build.
type liveBuild struct {
	progress func(sandbox.BuildEvent)
	result   sandbox.BuiltTemplate
}

func (l *liveBuild) take(e event) (last bool, err error) {
	switch e.name {
	case "progress":
		var b sandbox.BuildEvent
		if err := e.decode(&b); err != nil || l.progress == nil {
			return false, err
		}
		l.progress(b)
	case "result":
		return true, e.decode(&l.result)
	}
	return false, nil
}
