//go:build lean

package wiring

import (
	"context"
	"fmt"

	"pinfold/internal/filetree"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// images are none: the lean program hands runs in them over to the whole one.
type images struct{ dir string }

func (*images) get(name string) (image.Template, error) {
	return image.Template{}, &sandbox.Error{
		Code: sandbox.CodeTemplateUnknown, Field: "template", Message: fmt.Sprintf("no template \"%s\"", sandbox.SafeText(name, 60)),
		Hint: "take host, or one that pinfold template list names (with a server's --state, if a server is asked)",
	}
}

func (*images) home(context.Context, image.Template, string, *filetree.Writer) error { return nil }

func (*images) names(context.Context) ([]string, error) { return nil, nil }
