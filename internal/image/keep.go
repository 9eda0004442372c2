package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// KeepFor keeps the template's layers where they are for as long as there is a file, also
// while nobody uses them. The template must be held when it is called, and the file there.
func (t Template) KeepFor(file string) error {
	if t.Layers.Notes == "" {
		return nil
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	for range 8 { // who finds no note in the directory removes it
		if err = os.MkdirAll(t.Layers.Notes, 0o700); err != nil {
			return err
		}
		err = os.Symlink(file, filepath.Join(t.Layers.Notes, filepath.Base(file)))
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}
