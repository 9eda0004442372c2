package template

import (
	"cmp"
	"path/filepath"

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
	layers := image.Layers{Under: s.path("layers"), Record: s.path("images", i.ID.Hex()+".json")}
	for _, dir := range u.Layers {
		below, err := filepath.Rel(layers.Under, dir)
		if err != nil {
			return image.Template{}, failed("resolve the template", err)
		}
		layers.Dirs = append(layers.Dirs, below)
	}
	user := image.User{UID: int(who.UID), GID: int(who.GID), Name: who.Name, Home: who.Home}
	return image.Layered(root, name, string(i.ID), layers, user, i.Config.Env, programs), nil
}
