package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"pinfold/sandbox"
)

// Hold keeps the template's layers where they are until Close: whoever removes them
// locks their record alone. The error is of code template_unknown where they are gone.
func (t Template) Hold() (io.Closer, error) {
	if t.Layers.Record == "" {
		return io.NopCloser(nil), nil
	}
	f, err := os.Open(t.Layers.Record)
	if err == nil {
		err = hold(f)
		if err == nil {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, &sandbox.Error{
		Code: sandbox.CodeTemplateUnknown, Field: "template", Err: err,
		Message: fmt.Sprintf("the template %s was removed meanwhile", sandbox.SafeText(t.Name, 60)),
		Hint:    "try again, or fetch it again: pinfold template pull NAME",
	}
}

// hold takes the lock, and looks whether the record is still there.
func hold(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(f.Name())
	if err == nil && !os.SameFile(mine, there) {
		err = fs.ErrNotExist
	}
	return err
}
