package hostfiles

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strings"

	"pinfold/sandbox"
)

// maxInlineArtifacts bounds the content of all artifacts in one JSON result.
const maxInlineArtifacts = 8 << 20

// Sink takes files that come out of a sandbox, either below a directory or into
// memory. It is used from one goroutine at a time.
type Sink struct {
	Mode fs.FileMode // the permissions of every file, where they are known beforehand; 0: the usual ones

	dir     *os.Root // nil: in line
	content map[string][]byte
	inline  int64
	skipped []sandbox.SkippedArtifact
}

// Skipped lists what could not be stored, and why.
func (s *Sink) Skipped() []sandbox.SkippedArtifact { return s.skipped }

// NewSink opens a directory, and makes it when it is not there. Without a name the
// files are kept in memory, for Finish. Whoever has a sink closes it.
func NewSink(dir string) (*Sink, error) {
	s := &Sink{content: map[string][]byte{}}
	if dir == "" {
		return s, nil
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, PathError(sandbox.CodeSpecInvalid, dir, "is not a directory")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, PathError(sandbox.CodeSpecInvalid, dir, "cannot be made: "+Reason(err))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, OpenError(dir, err)
	}
	s.dir = root
	return s, nil
}

// OpenSink opens a directory that must be there.
func OpenSink(dir string) (*Sink, error) {
	root, err := os.OpenRoot(cmp.Or(dir, "."))
	if err != nil {
		return nil, OpenError(dir, err)
	}
	return &Sink{dir: root}, nil
}

// Close closes the directory.
func (s *Sink) Close() {
	if s.dir != nil {
		_ = s.dir.Close() // a directory handle: nothing is lost
	}
}

// Take is the engine's Request.Artifact. That one file cannot be stored here is
// no reason to lose the others: it is noted. An error of the content itself is
// the engine's.
func (s *Sink) Take(a sandbox.Artifact, content io.Reader) error {
	source := &source{r: content}
	err := sandbox.CheckGuestPath("artifacts", a.Path)
	switch {
	case err != nil:
	case s.dir != nil:
		err = s.Store(a, source)
	default:
		err = s.keep(a, source)
	}
	if err == nil || source.err != nil {
		return source.err
	}
	e := sandbox.AsError(err)
	s.skipped = append(s.skipped, sandbox.SkippedArtifact{Path: a.Path, Code: e.Code, Reason: e.Message})
	return nil
}

// source remembers that the content broke off, to tell it from a full disk.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// keep holds the content for the result while there is room; an artifact that
// does not fit is listed without content.
func (s *Sink) keep(a sandbox.Artifact, content io.Reader) error {
	if a.Size > maxInlineArtifacts-s.inline {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(content, maxInlineArtifacts-s.inline))
	if err != nil {
		return err
	}
	s.inline += int64(len(data))
	s.content[a.Path] = data
	return nil
}

// Store writes one artifact below the directory: into a new file first, which
// then takes the name. So what has the name already is replaced, never written
// through, and nobody sees half a file. Directories on the way are made; one
// that is a symbolic link is refused.
func (s *Sink) Store(a sandbox.Artifact, content io.Reader) error {
	if err := s.makeParents(path.Dir(a.Path)); err != nil {
		return err
	}
	if info, err := s.dir.Lstat(a.Path); err == nil && info.IsDir() {
		return hostFileError(a.Path, "there is a directory of that name")
	}
	temp := path.Join(path.Dir(a.Path), ".pinfold-"+hex.EncodeToString(fmt.Appendf(nil, "%08x", rand.Uint64())))
	if err := s.write(temp, a, content); err != nil {
		return errors.Join(err, ignoreNotExist(s.dir.Remove(temp)))
	}
	if err := s.dir.Rename(temp, a.Path); err != nil {
		return errors.Join(hostFileError(a.Path, Reason(err)), ignoreNotExist(s.dir.Remove(temp)))
	}
	return nil
}

func (s *Sink) write(name string, a sandbox.Artifact, content io.Reader) error {
	f, err := s.dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, cmp.Or(s.Mode, 0o644))
	if err != nil {
		return hostFileError(a.Path, Reason(err))
	}
	out := &sparseFile{file: f}
	n, err := io.Copy(out, io.LimitReader(content, a.Size+1))
	err = errors.Join(err, out.end())
	if s.Mode != 0 {
		err = errors.Join(err, f.Chmod(s.Mode)) // whatever the umask
	}
	err = errors.Join(err, f.Close())
	switch {
	case err != nil:
		return hostFileError(a.Path, Reason(err))
	case n != a.Size:
		return hostFileError(a.Path, fmt.Sprintf("%d bytes came instead of %d", n, a.Size))
	}
	return nil
}

// makeParents makes the directories of dir that are missing.
func (s *Sink) makeParents(dir string) error {
	if dir == "." {
		return nil
	}
	at := ""
	for part := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, part)
		if err := s.dir.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return hostFileError(at, Reason(err))
		}
		info, err := s.dir.Lstat(at)
		if err != nil {
			return hostFileError(at, Reason(err))
		}
		if !info.IsDir() {
			return hostFileError(at, "is in the way and is not a directory")
		}
	}
	return nil
}

// Finish completes the result: the content that was kept goes in line, and
// what could not be stored moves to the skipped ones. It says whether
// everything was stored.
func (s *Sink) Finish(r *sandbox.Result) bool {
	lost := map[string]bool{}
	for _, skipped := range s.skipped {
		lost[skipped.Path] = true
	}
	kept := []sandbox.Artifact{}
	for _, a := range r.Artifacts {
		if lost[a.Path] {
			continue
		}
		if content, ok := s.content[a.Path]; ok {
			a.Content = content
		}
		kept = append(kept, a)
	}
	r.Artifacts = kept
	r.ArtifactsSkipped = append(r.ArtifactsSkipped, s.skipped...)
	return len(s.skipped) == 0
}

// KeepExecutable gives the owner of a file in the sink's directory what mode has of
// executing, and others what the process's umask leaves them.
func (s *Sink) KeepExecutable(name string, mode uint32) error {
	if mode&0o111 == 0 || s.Mode != 0 {
		return nil
	}
	if err := s.dir.Chmod(name, 0o755); err != nil {
		return hostFileError(name, Reason(err))
	}
	return nil
}

func hostFileError(name, why string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodePathInvalid, Message: fmt.Sprintf("%s: %s", sandbox.SafeText(name, 200), why)}
}
