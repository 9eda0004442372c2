package build

import (
	"context"
	"fmt"

	"pinfold/internal/template"
	"pinfold/sandbox"
)

// tryStart makes a sandbox as users will, so that what does not start, or gets never ready,
// is the build's failure and not that of every sandbox.
func (b *building) tryStart(ctx context.Context, image template.Image) (template.Image, error) {
	if b.d.Start == "" {
		return image, nil
	}
	b.step("start", "start what its sandboxes begin with")
	return image, b.lentAs(image, func(u *template.Use) error {
		box, err := b.boxes.Create(ctx, sandbox.Create{
			Template: string(u.Template.Image.ID), Driver: stepDriver, TTLMS: sandbox.MaxTTLMS,
			Limits: sandbox.Limits{MemoryBytes: b.limits.memory, DiskBytes: b.limits.disk},
		})
		if err == nil {
			_, err = box.Destroy(context.WithoutCancel(ctx))
			return err
		}
		e := sandbox.AsError(err)
		if e.Code != sandbox.CodeStartFailed || ctx.Err() != nil {
			return b.noSandbox(err)
		}
		failed := &sandbox.Error{Code: sandbox.CodeBuildFailed, Field: "start", Err: err, Message: fmt.Sprintf("step %d of %d failed: %s", b.event.Number, b.event.Of, e.Message)}
		return failed.WithHint("nothing of it was kept; mend start and ready, or leave them out, and build again")
	})
}
