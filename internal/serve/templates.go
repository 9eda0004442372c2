package serve

import (
	"context"
	"path/filepath"

	"pinfold/internal/api"
	"pinfold/internal/template"
	"pinfold/internal/template/build"
	"pinfold/sandbox"
)

// buildTenant has the sandboxes in which templates are made. No key can be of that name, so
// that nobody who may only use sandboxes reaches into one of which every tenant's will be.
const buildTenant = "@build"

// builder makes templates in the state's directory of images, one at a time: a build has
// the limits of a large sandbox, and the disk of an image.
func (s *server) builder() api.Builder {
	one := make(chan struct{}, 1)
	return func(ctx context.Context, d *build.Declaration, o build.Options) (build.Result, error) {
		select {
		case one <- struct{}{}:
		default:
			return build.Result{}, &sandbox.Error{Code: sandbox.CodeBusy, Message: "another template is being built", Hint: "try again when it is done"}
		}
		defer func() { <-one }()
		store, err := template.Open(filepath.Join(s.config.State, "templates"), template.Limits{})
		if err != nil {
			return build.Result{}, err
		}
		return build.Build(ctx, store, build.In(s.engine.Manager, s.engine.Runner, buildTenant), d, o)
	}
}
