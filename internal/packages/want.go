package packages

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

// kinds says how sets of a kind are shown and which programs they take.
var kinds = map[string]struct {
	shown    string   // where sandboxes have a set
	programs []string // that use it
	env      string   // names the place to them
	tool     string   // installs it
	debian   string   // Debian's package with that
}{
	sandbox.PackagesPython: {sandbox.PythonPackagesDir, []string{"python3"}, "PYTHONPATH", "pip", "python3-pip"},
	sandbox.PackagesNPM:    {sandbox.NPMPackagesDir, []string{"node", "nodejs"}, "NODE_PATH", "npm", "npm"},
}

// Inside says in what the packages are to be used.
type Inside struct {
	Template image.Template
	// Image is the image that Template is, where that stands for it under an ID of the moment.
	Image string
	// Where is what a driver shows as the template host, where that is not this host's.
	Where  string
	Lookup language.Lookup
	Host   fs.FS
	// Driver and Isolation are the request's: a set is installed behind the same wall.
	Driver, Isolation string
	// Had are the packages, with versions and digests, that the sets are to have: those of a
	// sandbox before. Empty: whatever comes of what is asked for.
	Had sandbox.Packages
}

// Sets are those of one request.
type Sets struct {
	store  *Store
	inside Inside
	all    []set
}

// set is one of them.
type set struct {
	record

	owner string // whose directory it is in
	key   string
	index Index    // of one that is fetched
	had   []string // what it is to have; nil: whatever comes
	names []string // of npm's packages that are installed, with versions; nil: those asked for
}

// record is what is kept of a set beside its files, and what the key is made of: the first
// four fields.
type record struct {
	Kind     string   `json:"kind"`
	Index    string   `json:"index"`    // its URL
	Platform string   `json:"platform"` // for which interpreter it was installed
	Asked    []string `json:"asked"`

	Lock   []string `json:"lock"`   // all that was installed
	Bytes  int64    `json:"bytes"`  // of the files
	Files  int64    `json:"files"`  // and directories
	SHA256 string   `json:"sha256"` // of the files as writeTree writes them
}

// key is under which a tenant's set is kept.
func (r record) key() string {
	r.Lock, r.Bytes, r.Files, r.SHA256 = nil, 0, 0, ""
	text, _ := json.Marshal(r) // words only
	sum := sha256.Sum256(append([]byte("pinfold packages 1\n"), text...))
	return hex.EncodeToString(sum[:])
}

// owner is a tenant's directory.
func owner(tenant string) string {
	sum := sha256.Sum256([]byte(tenant))
	return hex.EncodeToString(sum[:16])
}

// Want says which sets a request takes, and refuses what cannot be had. It fetches nothing.
// Without packages it returns nil, which shows nothing.
func (s *Store) Want(tenant string, p sandbox.Packages, in Inside) (*Sets, error) {
	if p.Empty() {
		return nil, nil //nolint:nilnil // there are none
	}
	p, err := p.Canonical()
	if err != nil {
		return nil, err
	}
	w := &Sets{store: s, inside: in}
	for _, kind := range sandbox.PackageKinds() {
		asked := p.Of(kind)
		if len(asked) == 0 {
			continue
		}
		platform, err := in.platform(kind)
		if err != nil {
			return nil, err
		}
		one, err := s.find(tenant, kind, platform, asked)
		if had := in.Had.Of(kind); err == nil && len(had) > 0 {
			if r, err2 := s.read(one.owner, one.key); err2 != nil || !slices.Equal(r.Lock, had) {
				if one, err = s.find(tenant, kind, platform, had); namedTwice(kind, had) {
					one.names = asked // npm finds the places of both by itself
				}
			}
			one.had = had
		}
		if err != nil {
			return nil, err
		}
		w.all = append(w.all, one)
	}
	return w, nil
}

// find is a set that was loaded, or is or will be fetched of an index.
func (s *Store) find(tenant, kind, platform string, asked []string) (set, error) {
	one, ok, other := s.loaded(kind, platform, asked)
	if ok {
		return one, nil
	}
	one, err := s.ofIndex(owner(tenant), kind, platform, asked)
	if err != nil && other != "" {
		err = loadedForOther(kind, platform, other)
	}
	return one, err
}

// namedTwice says whether there is a package in more than one version, as npm has them.
func namedTwice(kind string, list []string) bool {
	names := map[string]bool{}
	return slices.ContainsFunc(list, func(text string) bool {
		p, err := sandbox.ParsePackage(kind, text)
		twice := err != nil || names[p.Name]
		names[p.Name] = true
		return twice
	})
}

// ofIndex is the set that an owner gets from an index.
func (s *Store) ofIndex(owner, kind, platform string, asked []string) (set, error) {
	index, err := s.index(kind)
	r := record{Kind: kind, Index: index.URL, Platform: platform, Asked: asked}
	return set{record: r, owner: owner, key: r.key(), index: index}, err
}

// index is where packages of a kind come from.
func (s *Store) index(kind string) (Index, error) {
	if s != nil {
		if i, ok := s.o.Indexes[kind]; ok {
			_, err := i.Network()
			return i, err
		}
	}
	e := &sandbox.Error{Code: sandbox.CodePackagesFailed, Field: "packages." + kind, Message: "no index of " + kind + " packages is named here, and nothing is fetched from anywhere else"}
	example := map[string]string{sandbox.PackagesPython: "https://pypi.org/simple/", sandbox.PackagesNPM: "https://registry.npmjs.org/"}[kind]
	env := map[string]string{sandbox.PackagesPython: PythonEnv + "='" + example + " files.pythonhosted.org'", sandbox.PackagesNPM: NPMEnv + "=" + example}[kind]
	return Index{}, e.WithAdvice(sandbox.Advise("the operator names one in %s, such as %s; for pinfold run without a server, %s",
		sandbox.Config("packages.indexes."+kind), sandbox.Text(example), sandbox.HostCommand("export "+env)))
}

// platform says for what a set is installed: an image, or the host's interpreter by its
// name with its version (python3.11).
func (in Inside) platform(kind string) (string, error) {
	k := kinds[kind]
	at, ok := in.Lookup(k.programs)
	if !ok {
		return "", &sandbox.Error{
			Code: sandbox.CodeLanguageMissing, Field: "packages." + kind, Message: "the template has no " + k.programs[0] + ", which would use them",
			Hint: "take a template that has it, or leave them out",
		}
	}
	if len(in.Template.Layers.Dirs) > 0 {
		return cmp.Or(in.Image, in.Template.ID) + " " + runtime.GOARCH, nil
	}
	platform := path.Base(in.Template.End(in.Host, at)) + " " + runtime.GOARCH
	return strings.TrimPrefix(in.Where+" "+platform, " "), nil
}

// dir is where a set's files are, or will be.
func (s *Store) dir(owner, key string) string {
	at, err := filepath.Abs(filepath.Join(s.o.Dir, owner, key, treeName))
	if err != nil { // no working directory: then it is not found, which is said
		return "/" + treeName
	}
	return at
}

// Mounts are the views of the sets' files.
func (w *Sets) Mounts() (all []sandbox.Mount) {
	if w == nil {
		return nil
	}
	for _, one := range w.all {
		all = append(all, sandbox.Mount{Host: w.store.dir(one.owner, one.key), Guest: kinds[one.Kind].shown})
	}
	return all
}

// Within is a machine with these mounts.
func (w *Sets) Within(m sandbox.MachineSpec) sandbox.MachineSpec {
	kept := w.Mounts()
	m.Mounts, m.Kept = append(slices.Clone(m.Mounts), kept...), len(kept)
	return m
}

// Env names the sets to programs, in variables behind what the request has there, or before
// what the template has.
func (w *Sets) Env(asked map[string]string) map[string]string {
	if w == nil {
		return asked
	}
	env := maps.Clone(asked)
	if env == nil {
		env = map[string]string{}
	}
	for _, one := range w.all {
		k := kinds[one.Kind]
		if asked := env[k.env]; asked != "" {
			env[k.env] = asked + ":" + k.shown
		} else {
			env[k.env] = strings.TrimSuffix(k.shown+":"+w.inside.variable(k.env), ":")
		}
	}
	return env
}

// variable is what the template has in one.
func (in Inside) variable(name string) string {
	for _, kv := range in.Template.Env {
		if n, value, _ := strings.Cut(kv, "="); n == name {
			return value
		}
	}
	return ""
}

// template is the name under which an installer's sandbox has the same template.
func (in Inside) template() string {
	if len(in.Template.Layers.Dirs) > 0 {
		return in.Template.ID
	}
	return cmp.Or(in.Template.Name, sandbox.TemplateHost)
}

// Showable refuses sets for a driver that cannot show them.
func (w *Sets) Showable(d driver.Driver) error {
	if w == nil || d.Abilities().Shows {
		return nil
	}
	return (&sandbox.Error{
		Code: sandbox.CodePackagesFailed, Field: "packages", Message: fmt.Sprintf("the %s driver cannot show packages", d.Name()),
	}).WithAdvice(sandbox.Advise("leave them out and take a template that has them, or %s; docker, gvisor and qemu show them, too", sandbox.Set("driver", "native")))
}
