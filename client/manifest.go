package client

import (
	"context"

	"pinfold/sandbox"
)

// Manifest returns the profiles that the key may use as tools in one of the forms of
// sandbox.ManifestForms; "" is Pinfold's. Spec.Profile and Create.Profile name one.
func (c *Client) Manifest(ctx context.Context, form string) (sandbox.SignedManifest, error) {
	k := get("manifest")
	k.query = values("form", form)
	return answered[sandbox.SignedManifest](ctx, c, k)
}
