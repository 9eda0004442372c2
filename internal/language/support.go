package language

import (
	"embed"
	"path"

	"pinfold/internal/interpreter"
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
//go:embed support/node.cjs support/sucrase.cjs support/javac.sh support/sync.rb support/sync.pm support/pinfold_warm.py support/pinfold_parent.py support/pinfold_forks.py support/pinfold_calls.py support/pinfold_image.py support/pinfold_atfork.py support/pinfold_forever.py support/wait.cjs
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
		content, ok := interpreter.File(name)
		if !ok {
			var err error
			if content, err = support.ReadFile("support/" + name); err != nil {
				return nil, err
			}
		}
		files = append(files, File{Path: path.Join(SupportDir, name), Content: content})
	}
	return files, nil
}
