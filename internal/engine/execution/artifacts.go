package execution

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Caps on what comes out of one run.
const (
	maxArtifacts      = 1000
	maxArtifactBytes  = 1 << 30 // of one file
	maxArtifactsTotal = 4 << 30 // of all files
	maxInlineTotal    = 32 << 20
	maxDiscovered     = 100
	maxDiscoveredSum  = 64 << 20
)

// Input is a file that went in.
type Input struct {
	Size int64
	Hash []byte // SHA-256
}

// Artifacts says which files come out of a machine, and where they go.
type Artifacts struct {
	Patterns []string // that the caller named; none: all files that are new
	// Sink receives each file as it comes out, in path order, from one goroutine. nil
	// keeps the content of those that were named in the result.
	Sink    func(a sandbox.Artifact, content io.Reader) error
	Inputs  map[string]func() Input // files that went in, by path
	Program string                  // the program's own file
	Mounts  []sandbox.Mount
	Began   time.Time // when the program was started
	// Gate checks each file before it goes anywhere; nil: there is none.
	Gate ArtifactGate
}

// ArtifactGate checks artifacts, from one goroutine.
type ArtifactGate interface {
	// MostRead is the most of one artifact that it reads, in bytes.
	MostRead() int64
	// Artifact returns what may come out of an artifact, or an error of code withheld.
	Artifact(a sandbox.Artifact, content []byte) ([]byte, error)
	// Unread decides the same on one that is larger than what is read; nil: all of it may.
	Unread(a sandbox.Artifact) error
}

// collectTimeout bounds how long files may take to come out.
const collectTimeout = 5 * time.Minute

// KillBeforeCollecting bounds how long the processes that a program has left may
// take to end before its files come out.
const KillBeforeCollecting = 3 * time.Second

// Collect ends what the program left behind and takes its files out, into the result.
// That a hostile sandbox makes this fail is said there, and changes nothing of what
// became of the program.
func (s *Session) Collect(ctx context.Context, a Artifacts, result *sandbox.Result) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	if len(a.Patterns) == 0 && s.Lacks(s.Plan.User.Home, func(name string) bool { return name == a.Program }) {
		return // what is still running may make some; it is killed all the same
	}
	c := &collector{Artifacts: a, session: s, result: result}
	if !s.KillGuest(ctx, KillBeforeCollecting) {
		c.reject("", sandbox.CodeResourceUnavailable, "no file could come out: the sandbox was already gone, or its processes did not end in time")
		return
	}
	if err := c.collect(ctx); err != nil {
		c.reject("", sandbox.AsError(err).Code, sandbox.AsError(err).Message)
	}
}

// collector takes files out of a session in which nothing of the guest's runs
// any more.
type collector struct {
	Artifacts

	session  *Session
	guest    *guest.Guest // the session's agent
	declared bool         // the caller named patterns

	total  int64
	inline int64
	result *sandbox.Result
}

// collect finds the files that match the patterns, or, without patterns, all, and
// takes out those that are new: see isNew.
func (c *collector) collect(ctx context.Context) error {
	patterns, most := c.Patterns, maxArtifacts
	if c.declared = len(patterns) > 0; !c.declared {
		patterns, most = []string{"**"}, maxDiscovered
	}
	var err error
	if c.guest, err = c.session.Agent(ctx); err != nil {
		return err
	}
	found, err := c.guest.Glob(ctx, c.session.Plan.User.Home, patterns, most+c.old())
	if err != nil {
		return err
	}
	taken := 0
	for _, f := range found.Files {
		if !slices.Contains(patterns, f.Path) && !c.isNew(ctx, f) {
			continue
		}
		if taken++; taken > most {
			found.More = true
			break
		}
		if err := c.take(ctx, f); err != nil {
			return err
		}
	}
	if found.More {
		c.reject("", sandbox.CodeTooLarge, "there are more files than come out at once; name the ones you want as artifacts")
	}
	if found.Unprintable > 0 {
		many := fmt.Sprintf("%d files have names that are", found.Unprintable)
		if found.Unprintable == 1 {
			many = "1 file has a name that is"
		}
		c.reject("", sandbox.CodePathInvalid, many+" too long or cannot be printed")
	}
	return nil
}

// old is how many files there may be besides those that the program makes.
func (c *collector) old() int {
	for _, m := range c.Mounts {
		if strings.HasPrefix(m.Guest, c.session.Plan.User.Home+"/") {
			return wire.MaxFiles
		}
	}
	return len(c.Inputs) + 1
}

// clockTick is how far a file's time stamp may lag behind the clock.
const clockTick = 20 * time.Millisecond

// isNew says whether the program made or changed a file: it is not the program's
// own, differs from what went in under its path, and if it lies in a directory
// of the host's, that is writable and the file was written since the start.
func (c *collector) isNew(ctx context.Context, f wire.FileEntry) bool {
	if f.Path == c.Program {
		return false
	}
	for _, m := range c.Mounts {
		if at := path.Join(c.session.Plan.User.Home, f.Path); at == m.Guest || strings.HasPrefix(at, m.Guest+"/") {
			return m.Writable && f.MtimeNS >= c.Began.Add(-clockTick).UnixNano()
		}
	}
	input := c.Inputs[f.Path]
	if input == nil || f.Type != "file" {
		return true
	}
	before := input()
	if before.Size != f.Size {
		return true
	}
	now := sha256.New()
	if _, err := c.guest.ReadFile(ctx, f.Path, f.Size, now); err != nil {
		return true // taking it out says what is wrong with it
	}
	return !bytes.Equal(before.Hash, now.Sum(nil))
}

func (c *collector) reject(name, code, reason string) {
	c.result.ArtifactsSkipped = append(c.result.ArtifactsSkipped, sandbox.SkippedArtifact{Path: name, Code: code, Reason: reason})
}

// take brings out one file, or notes why not.
func (c *collector) take(ctx context.Context, f wire.FileEntry) error {
	limit, sum := int64(maxArtifactBytes), int64(maxArtifactsTotal)
	if !c.declared && c.Sink == nil {
		limit, sum = maxDiscoveredSum, maxDiscoveredSum
	}
	sum = min(sum, c.session.Holds(maxArtifactsTotal))
	switch {
	case f.Type != "file":
		c.reject(f.Path, sandbox.CodeNotRegularFile, "it is not a regular file")
		return nil
	case f.Size > limit || c.total+f.Size > sum:
		c.reject(f.Path, sandbox.CodeTooLarge, "it is larger than what is left of "+sandbox.FormatSize(sum))
		return nil
	case c.declared && c.Sink == nil && c.inline+f.Size > maxInlineTotal:
		c.reject(f.Path, sandbox.CodeTooLarge, "artifacts in line may have "+sandbox.FormatSize(maxInlineTotal)+" together; ask for files instead")
		return nil
	}
	a, err := c.read(ctx, f)
	if err != nil {
		known := sandbox.AsError(err)
		switch known.Code {
		case sandbox.CodeNotRegularFile, sandbox.CodeFileNotFound, sandbox.CodeTooLarge, sandbox.CodePathInvalid, sandbox.CodeWithheld:
			c.reject(f.Path, known.Code, known.Message)
			return nil
		}
		return err
	}
	c.total += a.Size
	c.result.Artifacts = append(c.result.Artifacts, a)
	return nil
}

// Holds is the most that the sandbox's disk can hold, in bytes. Sparse files and many names
// for one file look larger, and would fill the host's disk from an empty one.
// Directories of the host are not bounded by it, but by what is given.
func (s *Session) Holds(otherwise int64) int64 {
	if slices.ContainsFunc(s.Plan.Mounts, func(m sandbox.Mount) bool { return !sandbox.IsPackagesDir(m.Guest) }) {
		return otherwise
	}
	return s.Plan.Limits.DiskBytes
}

// read streams one file through the hash to where it belongs. Its size is what
// was read, not what the directory said.
func (c *collector) read(ctx context.Context, f wire.FileEntry) (sandbox.Artifact, error) {
	a := ArtifactOf(f.Path, f.Size)
	if c.Gate != nil {
		if f.Size <= c.Gate.MostRead() {
			return c.readGated(ctx, f, a)
		}
		if err := c.Gate.Unread(a); err != nil {
			return a, err
		}
	}
	hash := sha256.New()
	var kept bytes.Buffer
	var err error
	switch {
	case c.Sink != nil:
		err = c.pipe(ctx, &a, hash)
	case c.declared:
		a.Size, err = c.guest.ReadFile(ctx, f.Path, f.Size, io.MultiWriter(hash, &kept))
		c.inline += a.Size
		a.Content = kept.Bytes()
	default:
		a.Size, err = c.guest.ReadFile(ctx, f.Path, f.Size, hash)
	}
	a.SHA256 = hex.EncodeToString(hash.Sum(nil))
	return a, err
}

// readGated reads a whole file and hands on what the gate lets out of it.
func (c *collector) readGated(ctx context.Context, f wire.FileEntry, a sandbox.Artifact) (sandbox.Artifact, error) {
	var whole bytes.Buffer
	var err error
	if a.Size, err = c.guest.ReadFile(ctx, f.Path, f.Size, &whole); err != nil {
		return a, err
	}
	content, err := c.Gate.Artifact(a, whole.Bytes())
	if err != nil {
		return a, err
	}
	a.Size = int64(len(content))
	sum := sha256.Sum256(content)
	a.SHA256 = hex.EncodeToString(sum[:])
	switch {
	case c.Sink != nil:
		err = c.Sink(a, bytes.NewReader(content))
	case c.declared:
		c.inline += a.Size
		a.Content = content
	}
	return a, err
}

// pipe hands the content to the sink while it is read and hashed.
func (c *collector) pipe(ctx context.Context, a *sandbox.Artifact, hash io.Writer) error {
	r, w := io.Pipe()
	var n int64
	done := make(chan error, 1)
	size := a.Size
	go func() {
		var err error
		n, err = c.guest.ReadFile(ctx, a.Path, size, w)
		w.CloseWithError(err)
		done <- err
	}()
	content := io.TeeReader(r, hash)
	sinkErr := c.Sink(*a, content)
	_, _ = io.Copy(io.Discard, content) // the hash is of the whole file
	readErr := <-done
	a.Size = n
	if readErr != nil {
		return readErr
	}
	return sinkErr
}

// mediaTypes maps the endings that data work produces to their media types.
var mediaTypes = map[string]string{
	".csv": "text/csv", ".gif": "image/gif", ".gz": "application/gzip", ".html": "text/html",
	".ipynb": "application/x-ipynb+json", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
	".js": "text/javascript", ".json": "application/json", ".jsonl": "application/jsonl",
	".md": "text/markdown", ".mp3": "audio/mpeg", ".mp4": "video/mp4", ".parquet": "application/vnd.apache.parquet",
	".pdf": "application/pdf", ".png": "image/png", ".py": "text/x-python", ".svg": "image/svg+xml",
	".tar": "application/x-tar", ".toml": "application/toml", ".tsv": "text/tab-separated-values",
	".txt": "text/plain", ".log": "text/plain", ".wav": "audio/wav", ".webp": "image/webp", ".xml": "application/xml",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".yaml": "application/yaml", ".yml": "application/yaml", ".zip": "application/zip",
}

// ArtifactOf describes a file by its name.
func ArtifactOf(name string, size int64) sandbox.Artifact {
	return sandbox.Artifact{Path: name, Size: size, MediaType: mediaType(name)}
}

// mediaType goes by the name alone: the content is the guest's.
func mediaType(name string) string {
	if t, ok := mediaTypes[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	return "application/octet-stream"
}
