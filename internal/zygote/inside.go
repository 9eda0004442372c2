package zygote

import (
	"embed"
	"slices"
)

// inside has the files that run in a sandbox. Each says in its first lines what it is for.
//
//go:embed inside
var inside embed.FS

// The programs that are started, in the directory that holds their other files.
const (
	PythonZygote = "pinfold_zygote.py"
	PythonWait   = "pinfold_warm.py"
	PythonCopied = "pinfold_copied.py"
	NodeWait     = "wait.cjs"
)

// PythonZygoteFiles returns the names of the files that PythonZygote needs, itself
// included, but for those of Python's harness.
func PythonZygoteFiles() []string { return slices.Clone(pythonZygoteFiles) }

var pythonZygoteFiles = []string{
	PythonZygote, PythonWait, protocolFile, "pinfold_host.py", "pinfold_siblings.py",
	"pinfold_loop.py", "pinfold_syscalls.py", "pinfold_image.py", "pinfold_atfork.py", "pinfold_immortal.py",
}

// PythonCopiedFiles returns the names of the files that PythonCopied needs, as
// PythonZygoteFiles does.
func PythonCopiedFiles() []string {
	return []string{PythonCopied, PythonWait, "pinfold_siblings.py", "pinfold_atfork.py"}
}

// File returns the content of one of the files. ok is false when there is none of
// that name.
func File(name string) (content []byte, ok bool) {
	if name == protocolFile {
		return protocolModule(), true
	}
	content, err := inside.ReadFile("inside/" + name)
	return content, err == nil
}
