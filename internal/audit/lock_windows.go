package audit

import "os"

// lockFile locks nothing: servers run on Linux.
func lockFile(*os.File) (taken bool, err error) { return true, nil }
