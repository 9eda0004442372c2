package client

import (
	"context"
	"io"
	"net/http"
	"strconv"
)

// Formats of archives.
const (
	FormatTar   = "tar"
	FormatTarGz = "tar.gz"
	FormatZip   = "zip"
)

// Archived says what was packed or unpacked.
type Archived struct {
	Files       int   `json:"files"`
	Directories int   `json:"directories"`
	Bytes       int64 `json:"bytes"` // of the files
	// Skipped counts what was left out of a packed archive: links, devices,
	// pipes, sockets, names that cannot be printed.
	Skipped int `json:"skipped"`
}

// skippedTrailer comes after an archive.
const skippedTrailer = "X-Archive-Skipped"

// Download writes what is in a directory as an archive to w, with names
// relative to the directory. Only regular files and directories go in; skipped
// counts the rest. A reader should still refuse names that leave the place
// where it unpacks.
func (s *Sandbox) Download(ctx context.Context, path, format string, w io.Writer) (skipped int, err error) {
	k := s.call(http.MethodGet, "archive")
	k.query, k.accept = values("path", path, "format", format), "*/*"
	resp, err := s.client.send(ctx, k)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read from
	read := &fileRead{sandbox: s, w: w, buf: make([]byte, transferBytes)}
	if err := read.copy(ctx, resp); err != nil {
		return 0, err
	}
	if text := resp.Trailer.Get(skippedTrailer); text != "" {
		if skipped, err = strconv.Atoi(text); err != nil {
			return 0, notOurs(resp, "ends with what is no number", err)
		}
	}
	return skipped, nil
}

// Upload unpacks an archive into a directory, which is made when it is missing.
// An archive with anything but regular files and directories under plain names
// is an error of code unsafe_archive, and changes nothing.
func (s *Sandbox) Upload(ctx context.Context, path, format string, r io.Reader) (Archived, error) {
	k := s.call(http.MethodPut, "archive")
	k.query, k.stream, k.size = values("path", path, "format", format), r, -1
	return answered[Archived](ctx, s.client, k)
}
