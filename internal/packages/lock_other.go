//go:build !unix

package packages

import (
	"errors"
	"os"
)

func flock(*os.File, bool) (bool, error) { return false, errors.ErrUnsupported }
