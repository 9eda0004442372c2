package language

import (
	"embed"
	"path"

	"pinfold/internal/interpreter"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// Places are where a sandbox's user may write: its home, which is also the working
// directory, and temporary files. Both are absolute.
type Places struct {
	Home, Tmp string
	HostRoot  bool     // the root is the host's own
	Env       []string // of the template, K=V
}

// UsualPlaces are those of a sandbox with a root of its own.
func UsualPlaces() Places { return Places{Home: sandbox.Home, Tmp: "/tmp"} }

// Support is the directory in a sandbox for Pinfold's own files and for what compilers
// make. It is the user's: nothing in it is trusted.
func (p Places) Support() string { return p.Tmp + "/.pinfold" }

// program is what {out} stands for.
func (p Places) program() string { return p.Support() + "/program" }

// At returns the language with the user's places elsewhere than usual.
func (l Language) At(p Places) Language {
	l.places = &p
	return l
}

func (l Language) at() Places {
	if l.places == nil {
		return UsualPlaces()
	}
	return *l.places
}

// support holds the files that some languages need inside. Each says in its
// first lines what it is for. sucrase.cjs is made by sucrase.sh; its licences
// are in sucrase.LICENSE.
//
//go:embed support/node.cjs support/sucrase.cjs support/javac.sh support/sync.rb support/sync.pm
var support embed.FS

// File is a file that a run needs in the sandbox, readable by the user.
type File struct {
	Path    string // absolute
	Content []byte
}

// supportFiles returns the named files at their places in the sandbox. A name
// that does not exist is a mistake in the table, which a test would have found.
func (l Language) supportFiles(names []string) ([]File, error) {
	files := make([]File, 0, len(names))
	for _, name := range names {
		content, err := supportFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: path.Join(l.at().Support(), name), Content: content})
	}
	return files, nil
}

// supportFile returns the content of a file: a harness's, a warm interpreter's, or
// one of this package.
func supportFile(name string) ([]byte, error) {
	if content, ok := interpreter.File(name); ok {
		return content, nil
	}
	if content, ok := zygote.File(name); ok {
		return content, nil
	}
	return support.ReadFile("support/" + name)
}
