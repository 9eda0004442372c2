package sandbox

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Layout is what lies in the working directory before a program starts. It
// refuses whatever would take the place of something else: the program's own
// file above all. It keeps no more than the paths that it was given: ten
// thousand of them, each a thousand bytes of short names, have millions of
// directories.
type Layout struct {
	program []place // or none
	places  []place
	mounts  []Mount
}

// place is what shall lie at a path.
type place struct {
	path  string
	field string // of the request, for errors
	what  placeKind
	at    int // how many were added before; -1: the program, which nobody added
}

type placeKind int

const (
	placeFile placeKind = iota
	placeProgram
	placeDir
)

// NewLayout returns a layout in which nothing lies but the program, whose path
// is empty when it is one of the files that are added. What is put below a
// mount would be written to the host's own directory, and is refused.
func NewLayout(program string, mounts []Mount) (*Layout, error) {
	l := &Layout{mounts: mounts}
	if program == "" {
		return l, nil
	}
	for i, m := range mounts {
		if m.holds(path.Join(Home, program)) {
			return nil, specError(fmt.Sprintf("mounts[%d]", i), fmt.Sprintf("\"%s\" would take the place of the program, whose file is %s", SafeText(m.Guest, 80), program)).
				WithHint("show it elsewhere, such as at " + Home + "/" + SafeText(path.Base(m.Host), 60))
		}
	}
	l.program = []place{{path: path.Clean(program), what: placeProgram, at: -1}}
	return l, nil
}

// AddFile puts a file at a path relative to the working directory. The error,
// which names the field, says that it would lie in a mount; everything else is
// for Check.
func (l *Layout) AddFile(field, name string) error { return l.add(field, name, placeFile) }

// AddDir puts a directory there. One that is there already is no error.
func (l *Layout) AddDir(field, name string) error { return l.add(field, name, placeDir) }

func (l *Layout) add(field, name string, what placeKind) error {
	name = path.Clean(name)
	if len(l.mounts) > 0 {
		at := path.Join(Home, name)
		for _, m := range l.mounts {
			if m.holds(at) && (what != placeDir || at != m.Guest) {
				return specError(field, fmt.Sprintf("\"%s\" lies in what the host shows at %s, where nothing is copied to", SafeText(name, 80), SafeText(m.Guest, 80)))
			}
		}
	}
	l.places = append(l.places, place{name, field, what, len(l.places)})
	return nil
}

// Check says whether everything that was added can lie there together. The error
// names the field of a path that would take the place of one before it, and says
// what lies there already; which is how many were added before that path.
func (l *Layout) Check() (which int, err error) {
	sorted := slices.Concat(l.program, l.places)
	slices.SortFunc(sorted, func(a, b place) int {
		return cmp.Or(comparePaths(a.path, b.path), cmp.Compare(a.at, b.at))
	})
	// What lies below a file follows it at once, and so does what lies at its own
	// path: where anything is wrong, it is wrong between neighbours.
	for i := 1; i < len(sorted); i++ {
		p, next := sorted[i-1], sorted[i]
		if later := max(p.at, next.at); (err == nil || later < which) && p.excludes(next) {
			which, err = later, p.fault(next)
		}
	}
	return which, err
}

// comparePaths orders paths name by name: what lies below a path follows it before
// all others.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
			continue
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		}
		return cmp.Compare(a[i], b[i])
	}
	return cmp.Compare(len(a), len(b))
}

// excludes says whether the next one in the order of paths cannot be there, too.
func (p place) excludes(next place) bool {
	if p.path == next.path {
		return p.what != placeDir || next.what != placeDir
	}
	return p.what != placeDir && strings.HasPrefix(next.path, p.path) && next.path[len(p.path)] == '/'
}

// fault says so in the words of the one that was added later.
func (p place) fault(next place) error {
	same, field := p.path == next.path, next.field
	if p.at > next.at {
		field = p.field
	}
	switch {
	case p.what == placeProgram:
		return hidesProgram(field, p.path)
	case same && p.what == next.what:
		return specError(field, fmt.Sprintf("\"%s\" is given twice", SafeText(p.path, 80)))
	case same || p.at > next.at:
		return specError(field, fmt.Sprintf("\"%s\" is a file and a directory", SafeText(p.path, 80)))
	}
	return specError(field, fmt.Sprintf("\"%s\" lies below \"%s\", which is a file", SafeText(next.path, 80), SafeText(p.path, 80)))
}

func hidesProgram(field, name string) error {
	return specError(field, fmt.Sprintf("\"%s\" is the program's own file, which this would replace", SafeText(name, 80))).
		WithAdvice(Advise("give it another path; or run it: %s and write %s", Omit("code"), Set("entrypoint", SafeText(name, 80))))
}
