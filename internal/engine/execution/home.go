package execution

import (
	"context"
	"io"

	"pinfold/internal/driver"
	"pinfold/internal/filetree"
	"pinfold/internal/image"
)

// Homes writes what an image has in its user's home, as a place of that name.
type Homes func(ctx context.Context, t image.Template, place string, w *filetree.Writer) error

// FillHome gives the user a copy of what the image has in the home, before anything else
// is put there. What does not fit is an error that names the limit.
func (s *Session) FillHome(ctx context.Context, homes Homes) error {
	if homes == nil || s.Plan.Template.Home.Entries == 0 {
		return nil
	}
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		files := filetree.NewWriter(w)
		err := homes(ctx, s.Plan.Template, driver.PlaceHome, files)
		if err == nil {
			_, err = files.End()
		}
		_ = w.CloseWithError(err)
		written <- err
	}()
	err := s.Restore(ctx, r)
	_ = r.CloseWithError(io.ErrClosedPipe) // if the agent does not want all of it
	if writeErr := <-written; err == nil {
		err = writeErr
	}
	return err
}
