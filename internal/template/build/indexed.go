package build

import (
	"archive/tar"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"pinfold/internal/packages"
	"pinfold/internal/template"
	"pinfold/sandbox"
)

// # Packages of indexes
//
// They are fetched before anything else is done, for the programs of the base, in a sandbox
// of which nothing but the files that came out gets here. These become a layer, each set in
// a directory of its own, named after its content, so that none mixes with what is there;
// no command of the build can write to it. The image's variables name it to programs.

// fetchedDir is where the image has sets, each in a directory of its own.
const fetchedDir = "/usr/lib/pinfold"

// fetch has the declaration's packages of indexes here.
func (b *building) fetch(ctx context.Context, base template.Image) error {
	named := b.d.Packages.named()
	if named.Empty() {
		return nil
	}
	b.step("packages", "fetch packages")
	lent := base
	lent.Config.User = b.config(base.Config).User // who may be mended by the declaration
	return b.lentAs(lent, func(u *template.Use) (err error) {
		if err := checkWay(u, fetchedDir); err != nil {
			return below("packages", err)
		}
		b.fetched, err = b.boxes.Packages(ctx, named, string(u.Template.Image.ID), string(base.ID))
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		return b.noSandbox(err)
	})
}

// fetchedPlace is where the image has a set. Packages of npm's find each other in a directory
// of that name only.
func fetchedPlace(t packages.Tree) string {
	place := fetchedDir + "/" + t.Kind + "-" + t.SHA256[:min(16, len(t.SHA256))]
	if t.Kind == sandbox.PackagesNPM {
		place += "/node_modules"
	}
	return place
}

// addFetched adds a layer of what was fetched.
func (b *building) addFetched(ctx context.Context, image template.Image) (template.Image, error) {
	trees := b.fetched.Trees()
	if len(trees) == 0 {
		return image, nil
	}
	return b.add(ctx, image, layered(func(t *tar.Writer) error {
		var all error
		for _, tree := range trees {
			all = errors.Join(all, tree.Add(ctx, strings.TrimPrefix(fetchedPlace(tree), "/"), time.Unix(epoch, 0), t))
		}
		return all
	}))
}

// nameFetched puts the places of sets into variables: behind what the declaration has there,
// or before what the base has.
func (b *building) nameFetched(own map[string]string, base []string) {
	for _, t := range b.fetched.Trees() {
		if said := own[t.Env]; said != "" {
			own[t.Env] = said + ":" + fetchedPlace(t)
			continue
		}
		own[t.Env] = fetchedPlace(t)
		for _, kv := range base {
			if name, value, _ := strings.Cut(kv, "="); name == t.Env && value != "" {
				own[t.Env] += ":" + value
			}
		}
	}
}

// recorded are the packages of indexes that the image has, those of its base included, with
// versions and digests.
func (b *building) recorded() (all sandbox.Packages) {
	if all = b.had; b.fetched == nil {
		return all
	}
	with := func(had, more []string) []string {
		list := slices.Concat(had, more)
		slices.Sort(list)
		return slices.Compact(list)
	}
	return sandbox.Packages{Python: with(all.Python, b.fetched.Packages.Python), NPM: with(all.NPM, b.fetched.Packages.NPM)}
}
