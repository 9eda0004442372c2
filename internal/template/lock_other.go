//go:build !unix

package template

import (
	"errors"
	"os"
)

func flock(*os.File, bool, bool) (bool, error) { return false, errors.ErrUnsupported }

func ownedByUs(os.FileInfo) bool { return false }

func links(os.FileInfo) (count uint64, inode [2]uint64) { return 1, inode }
