package template

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"

	"pinfold/internal/image"
)

// Resolve describes what sandboxes of a template hold, by what Get takes. Programs of the
// names are looked up. The error is a *sandbox.Error.
//
// The image must be held (image.Template.Hold) by whoever makes a sandbox of it.
func (s *Store) Resolve(name string, programs []string) (image.Template, error) {
	u, err := s.Use(name)
	if err != nil {
		return image.Template{}, err
	}
	defer u.Close()
	root, done, err := u.Files()
	if err != nil {
		return image.Template{}, err
	}
	defer done()
	i := u.Template.Image
	who, err := account(root, cmp.Or(i.Config.User, "0"))
	if err == nil {
		err = who.check()
	}
	if err != nil {
		return image.Template{}, err
	}
	layers := image.Layers{Under: s.path("layers"), Record: s.path("images", i.ID.Hex()+".json"), Notes: s.path(keptDir, i.ID.Hex())}
	if layers.Dirs, err = u.below(layers.Under); err != nil {
		return image.Template{}, failed("resolve the template", err)
	}
	user := image.User{UID: int(who.UID), GID: int(who.GID), Name: who.Name, Home: who.Home}
	t := image.Layered(root, name, string(i.ID), layers, user, i.Config.Env, programs)
	t.StartIn(root, i.Config.WorkingDir)
	t.AddPlaces(i.Config.Places)
	t.Start = i.Config.Start
	if t.Home, err = u.homeOf(context.Background(), t.User.Home); err != nil {
		return image.Template{}, err
	}
	if root.spent() {
		return image.Template{}, tooMuch("takes too long to look through: too many links lead through too many layers")
	}
	return t, nil
}

// below returns the layers that an overlay needs, relative to a directory: each once, and
// none below one whose root hides them, to which overlays pay no heed.
func (u *Use) below(under string) (dirs []string, err error) {
	for _, dir := range u.visible() {
		rel, err := filepath.Rel(under, dir)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(dirs, rel) {
			dirs = append(dirs, rel)
		}
	}
	return dirs, nil
}

// visible are the layers down to the first whose root is opaque.
func (u *Use) visible() []string {
	for i, dir := range u.Layers {
		f, err := os.Open(dir)
		if err != nil {
			continue // who looks into it will say so
		}
		opaque, err := isOpaque(f)
		_ = f.Close()
		if err == nil && opaque {
			return u.Layers[:i+1]
		}
	}
	return u.Layers
}
