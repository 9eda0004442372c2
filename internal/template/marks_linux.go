package template

import (
	"io/fs"
	"os"

	"pinfold/internal/linux/whiteout"
)

func makeWhiteout(dir *os.File, name string) error { return whiteout.Make(int(dir.Fd()), name) }

func isWhiteout(info fs.FileInfo) bool { return whiteout.Is(info) }

func setOpaque(dir *os.File) error { return whiteout.SetOpaque(int(dir.Fd())) }

func isOpaque(dir *os.File) (bool, error) { return whiteout.IsOpaque(int(dir.Fd())) }
