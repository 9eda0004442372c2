package sandbox

import (
	"fmt"
	"path"
	"strings"
)

// Layout is what lies in the working directory before a program starts. It
// refuses whatever would take the place of something else: the program's own
// file above all.
type Layout struct {
	places map[string]place
	mounts []Mount
}

// place is what lies at a path.
type place int

const (
	placeFile    place = 1 + iota
	placeProgram       // the file that holds Spec.Code
	placeDir           // named as one, or on the way to something
)

// NewLayout returns a layout in which nothing lies but the program, whose path
// is empty when it is one of the files that are added. What is put below a
// mount would be written to the host's own directory, and is refused.
func NewLayout(program string, mounts []Mount) (*Layout, error) {
	l := &Layout{places: map[string]place{}, mounts: mounts}
	if program == "" {
		return l, nil
	}
	for i, m := range mounts {
		if m.holds(program) {
			return nil, specError(fmt.Sprintf("mounts[%d]", i), fmt.Sprintf("\"%s\" would take the place of the program, whose file is %s", SafeText(m.Guest, 80), program)).
				WithHint("show it elsewhere, such as at " + Home + "/" + SafeText(path.Base(m.Host), 60))
		}
	}
	return l, l.add("", program, placeProgram)
}

// AddFile puts a file at a path relative to the working directory. The error
// names the field, and says what lies there already.
func (l *Layout) AddFile(field, name string) error { return l.add(field, name, placeFile) }

// AddDir puts a directory there. One that is there already is no error.
func (l *Layout) AddDir(field, name string) error { return l.add(field, name, placeDir) }

func (l *Layout) add(field, name string, what place) error {
	name = path.Clean(name)
	for _, m := range l.mounts {
		if m.holds(name) && (what != placeDir || path.Join(Home, name) != m.Guest) {
			return specError(field, fmt.Sprintf("\"%s\" lies in what the host shows at %s, where nothing is copied to", SafeText(name, 80), SafeText(m.Guest, 80)))
		}
	}
	switch there := l.places[name]; {
	case there == placeProgram:
		return l.hidesProgram(field, name)
	case there == placeFile && what == placeDir, there == placeDir && what != placeDir:
		return specError(field, fmt.Sprintf("\"%s\" is a file and a directory", SafeText(name, 80)))
	case there == placeFile:
		return specError(field, fmt.Sprintf("\"%s\" is given twice", SafeText(name, 80)))
	}
	for i, c := range name {
		if c != '/' {
			continue
		}
		switch above := name[:i]; l.places[above] {
		case placeProgram:
			return l.hidesProgram(field, above)
		case placeFile:
			return specError(field, fmt.Sprintf("\"%s\" lies below \"%s\", which is a file", SafeText(name, 80), SafeText(above, 80)))
		default:
			l.places[above] = placeDir
		}
	}
	l.places[name] = what
	return nil
}

func (l *Layout) hidesProgram(field, name string) error {
	return specError(field, fmt.Sprintf("\"%s\" is the program's own file, which this would replace", SafeText(name, 80))).
		WithHint(fmt.Sprintf(`give it another path; or run it: leave code out and write "entrypoint": "%s"`, SafeText(name, 80)))
}

// holds says whether a path of the working directory is the mount's, or below it.
func (m Mount) holds(name string) bool {
	at := path.Join(Home, name)
	return at == m.Guest || strings.HasPrefix(at, m.Guest+"/")
}
