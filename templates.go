package pinfold

import (
	"context"

	"pinfold/client"
	"pinfold/internal/engine/records"
	"pinfold/internal/template"
	"pinfold/internal/template/build"
	"pinfold/sandbox"
)

// BuildOptions say how a template is made of a declaration.
type BuildOptions struct {
	client.BuildOptions

	Name string // of the template; empty: the declaration's
	Dir  string // where the files are that the declaration names; empty: it may name none
}

// BuiltTemplate is what became of a declaration.
type BuiltTemplate = sandbox.BuiltTemplate

// BuildTemplate makes a template of a declaration, in YAML or JSON, or of one that
// Pinfold has, by its name ("python", "node"). Its steps run in sandboxes of this process.
// docs/templates.md says what a declaration is. A step that fails is an error of code
// build_failed whose field is the step's.
func (l *Local) BuildTemplate(ctx context.Context, declaration string, o BuildOptions) (BuiltTemplate, error) {
	if l.images == "" {
		return BuiltTemplate{}, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "Images", Message: "no directory for images is known", Hint: "set Options.Images or Options.StateDir"}
	}
	text := []byte(declaration)
	if shipped, ok := build.Shipped(declaration); ok {
		text = shipped
	}
	d, err := build.Parse(text)
	if err != nil {
		return BuiltTemplate{}, err
	}
	s, err := template.Open(l.images, template.Limits{})
	if err != nil {
		return BuiltTemplate{}, err
	}
	r, err := build.Build(ctx, s, build.In(l.engine.Manager, l.engine.Runner, records.LocalTenant), d, build.Options{Name: o.Name, Dir: o.Dir, Fresh: o.Fresh, Progress: o.Progress})
	if err != nil {
		return BuiltTemplate{}, err
	}
	return r.Built(), nil
}
