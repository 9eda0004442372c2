package language

import (
	"embed"
	"path"

	"pinfold/internal/interpreter"
	"pinfold/internal/zygote"
)

// SupportDir is the directory in a sandbox for Pinfold's own files and for
// what compilers make. It is the user's: nothing in it is trusted.
const SupportDir = "/tmp/.pinfold"

// program is what {out} stands for.
const program = SupportDir + "/program"

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
func supportFiles(names []string) ([]File, error) {
	files := make([]File, 0, len(names))
	for _, name := range names {
		content, err := supportFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: path.Join(SupportDir, name), Content: content})
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
