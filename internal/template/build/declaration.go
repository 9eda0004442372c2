package build

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// Declaration says what a template is made of.
type Declaration struct {
	Name     string            `json:"name,omitempty"`
	Base     Base              `json:"base"`
	Packages DeclaredPackages  `json:"packages,omitzero"`
	Files    []PlacedFile      `json:"files,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	User     string            `json:"user,omitempty"`     // of the image's /etc/passwd, or a number
	Workdir  string            `json:"workdir,omitempty"`  // where commands of Run start
	Writable []string          `json:"writable,omitempty"` // beside the usual places
	Run      []string          `json:"run,omitempty"`      // lines for /bin/sh
	Limits   Bounds            `json:"limits,omitzero"`

	Start string `json:"start,omitempty"` // a line for /bin/sh that living sandboxes begin with
	Ready string `json:"ready,omitempty"` // another, which succeeds when that is ready
}

// Base is what a template begins with: another template, or Debian's packages.
type Base struct {
	Template string  `json:"template,omitempty"`
	Debian   *Debian `json:"debian,omitempty"`
}

// Debian is a root file system of Debian's packages, of the essential ones and of those
// that are named, with what they depend on.
type Debian struct {
	Suite    string   `json:"suite"`
	Packages []string `json:"packages,omitempty"`
}

// DeclaredPackages are in files beside the declaration, or of the operator's indexes, as
// runs name them (sandbox.Packages).
type DeclaredPackages struct {
	Debian []string `json:"debian,omitempty"` // unpacked: .deb
	Python []string `json:"python,omitempty"` // wheels: .whl; or "rich==13.9.4"
	Npm    []string `json:"npm,omitempty"`    // .tgz; or "left-pad@1.3.0"
}

// Endings of files of packages, by which an entry is known for one.
const (
	debianFile = ".deb"
	pythonFile = ".whl"
	npmFile    = ".tgz"
)

// named are the packages of indexes.
func (p DeclaredPackages) named() sandbox.Packages {
	of := func(all []string, ending string) (list []string) {
		for _, text := range all {
			if !strings.HasSuffix(text, ending) {
				list = append(list, text)
			}
		}
		return list
	}
	return sandbox.Packages{Python: of(p.Python, pythonFile), NPM: of(p.Npm, npmFile)}
}

// PlacedFile is a file of the template. Its content is that of a file beside the declaration, or
// stands in it.
type PlacedFile struct {
	Path          string  `json:"path"`
	From          string  `json:"from,omitempty"`
	Content       *string `json:"content,omitempty"`
	ContentBase64 []byte  `json:"content_base64,omitempty"`
	Mode          string  `json:"mode,omitempty"` // "0644" or "0755"; default that of From
}

// Bounds are the limits of a build. Sizes and times are written as elsewhere: 1GiB, 10m.
type Bounds struct {
	Time   string `json:"time,omitempty"`   // of each step
	Memory string `json:"memory,omitempty"` // of what runs
	Disk   string `json:"disk,omitempty"`   // of what is installed
	Ready  string `json:"ready,omitempty"`  // until ready succeeds, in every sandbox; default 1m
}

// UnmarshalJSON implements json.Unmarshaler: a name, or an object.
func (b *Base) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte{'"'}) {
		return json.Unmarshal(text, &b.Template)
	}
	type plain Base // without this method
	if err := strictjson.Decode(text, (*plain)(b)); err != nil {
		return below("base", err)
	}
	if b.Template != "" && b.Debian != nil {
		return invalid("base", "is either a template or Debian's packages").WithHint("leave one of them out")
	}
	return nil
}

// usualPlaces are where packages that no distribution made are installed.
var usualPlaces = []string{"/opt", "/srv", "/usr/local"}

// Places are the directories that commands can write to and whose changes are kept.
func (d *Declaration) Places() []string {
	places := slices.Clone(usualPlaces)
	for _, w := range d.Writable {
		if !slices.ContainsFunc(places, func(p string) bool { return within(w, p) }) {
			places = append(places, w)
		}
	}
	slices.Sort(places)
	return places
}

// within says whether a path is a directory or lies in it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// runsAnything says whether a sandbox is needed.
func (d *Declaration) runsAnything() bool {
	named := d.Packages.named()
	return len(d.Packages.Python)+len(d.Packages.Npm)-len(named.Python)-len(named.NPM)+len(d.Run) > 0
}
