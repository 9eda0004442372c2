//go:build !linux

package template

import (
	"errors"
	"io/fs"
	"os"
)

// Where there are no overlays no layer hides anything.

func makeWhiteout(*os.File, string) error { return errors.ErrUnsupported }

func isWhiteout(fs.FileInfo) bool { return false }

func setOpaque(*os.File) error { return errors.ErrUnsupported }

func isOpaque(*os.File) (bool, error) { return false, nil }
