package build

import (
	"encoding/json"
	"maps"
	"slices"

	"pinfold/internal/template"
)

// keyVersion changes whenever the same declaration would make another image.
const keyVersion = 1

// key is the hash of all that decides the image.
func (b *building) key(base template.Image) template.ID {
	type part struct {
		Path, Sum string
		Exec      bool
	}
	of := func(all []input) (list []part) {
		for _, i := range all {
			list = append(list, part{i.path, i.sum, i.exec})
		}
		return list
	}
	env := [][2]string{}
	for _, k := range slices.Sorted(maps.Keys(b.d.Env)) {
		env = append(env, [2]string{k, b.d.Env[k]})
	}
	parts := map[string]any{
		"version": keyVersion, "base": base.ID, "files": of(b.in.files), "debs": of(b.in.debs), "wheels": of(b.in.wheels), "npm": of(b.in.npm),
		"env": env, "user": b.d.User, "workdir": b.d.Workdir, "places": b.d.Places(), "run": b.d.Run,
		"start": b.config(base.Config).Start,
	}
	for _, t := range b.fetched.Trees() { // with none, the key is what it always was
		parts["packages "+t.Kind] = []any{b.fetched.Packages.Of(t.Kind), t.SHA256}
	}
	return keyOf(parts)
}

// debianKey is the hash of what decides a base, but for what is in Debian's archive on
// the day on which it is made.
func debianKey(d *Debian, sources []string) template.ID {
	packages := slices.Sorted(slices.Values(d.Packages))
	return keyOf(map[string]any{"version": keyVersion, "suite": d.Suite, "packages": slices.Compact(packages), "sources": sources})
}

func keyOf(v map[string]any) template.ID {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts, numbers and lists of them
	}
	return template.Hash(text)
}
