package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"pinfold/internal/engine/living"
	"pinfold/sandbox"
)

// guestPath checks a path that a client gave, absolute or relative to the home
// directory. Links inside are the agent's business, which never leaves the
// sandbox; what stands here is for names that could mean something else than
// they look like.
func guestPath(field, name string) (string, error) {
	if name == "." || name == "/" {
		return name, nil
	}
	return name, sandbox.CheckGuestPath(field, strings.TrimPrefix(name, "/"))
}

// place is a path inside a sandbox.
type place struct {
	*living.Sandbox

	path string
}

// place is the sandbox of the path, and the path inside it of the query.
func (c *call) place() (place, error) {
	s, err := c.sandbox()
	if err != nil {
		return place{}, err
	}
	name, err := guestPath("path", c.query.text("path"))
	return place{s, name}, err
}

// notFile says what other files are, and how to get at what is behind them.
var notFile = map[string]struct{ what, hint string }{
	sandbox.FileDir:     {"a directory", "GET …/files/list lists it, GET …/archive brings it"},
	sandbox.FileSymlink: {"a symbolic link", "only regular files can be read; GET …/files/stat says where it leads"},
	sandbox.FileOther:   {"a pipe, a socket or a device", "only regular files can be read; a process inside can read it, and write what comes to a file"},
}

// span is a part of a file.
type span struct{ first, length int64 }

func (c *call) readFile(at place) error {
	return at.Out(c.r.Context(), at.path, func(files *living.Files) error {
		return files.Fetch(c.r.Context(), at.path, func(info sandbox.FileInfo) (living.Part, error) {
			setGate(c.w.Header(), files.Outcome())
			return c.offer(info)
		})
	})
}

// gateHeader has what an output gate has made of files: a GateResult, in JSON, of the checks
// that have found something, without the single findings.
const gateHeader = "X-Pinfold-Gate"

// setGate says what a gate has made of files; without one, nothing.
func setGate(h http.Header, r *sandbox.GateResult) {
	if r == nil {
		return
	}
	short := sandbox.GateResult{Outcome: r.Outcome, Checks: []sandbox.GateOutcome{}}
	for _, check := range r.Checks {
		if check.Outcome != sandbox.GatePass {
			check.Findings = nil
			short.Checks = append(short.Checks, check)
		}
	}
	if b, err := json.Marshal(short); err == nil { // what the vocabulary has can always be said in JSON
		h.Set(gateHeader, string(b))
	}
}

// offer answers with the header for a file and says which part of it is to follow.
// The header of one that has a body goes out with its first byte, so that a file that
// cannot be read is an error; until then another file may be offered instead.
func (c *call) offer(info sandbox.FileInfo) (living.Part, error) {
	if info.Type != sandbox.FileRegular {
		not := notFile[info.Type]
		return living.Part{}, &sandbox.Error{Code: sandbox.CodeNotRegularFile, Field: "path", Message: "that is " + not.what + ", and no regular file", Hint: not.hint}
	}
	tag := fmt.Sprintf(`"%x-%x"`, info.Size, info.MTime.UnixNano())
	h := c.w.Header()
	h.Set("ETag", tag)
	h.Set("Accept-Ranges", "bytes")
	h.Del("Content-Range")
	if tagMatches(c.r.Header.Get("If-None-Match"), tag) {
		c.w.WriteHeader(http.StatusNotModified)
		return living.Part{}, nil
	}
	part, partial, err := c.rangeOf(info.Size, tag)
	if err != nil {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", info.Size))
		return living.Part{}, err
	}
	// Whatever is in the file, it is bytes to keep, never a page of ours.
	h.Set("Content-Type", typeBytes)
	h.Set("Content-Disposition", disposition(info.Path))
	h.Set("Content-Length", strconv.FormatInt(part.length, 10))
	status := http.StatusOK
	if partial {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.first, part.first+part.length-1, info.Size))
	}
	if c.r.Method == http.MethodHead || part.length == 0 {
		c.w.WriteHeader(status)
		return living.Part{}, nil
	}
	late := &lateWriter{out: newOutlet(c.w), begin: func() { c.w.WriteHeader(status) }}
	return living.Part{Offset: part.first, Length: part.length, To: late}, nil
}

// lateWriter sends the header before the first byte.
type lateWriter struct {
	out   *outlet
	begin func()
}

func (l *lateWriter) Write(b []byte) (int, error) {
	if l.begin != nil {
		l.begin()
		l.begin = nil
	}
	return l.out.Write(b)
}

// disposition names a file for who saves it. The name is the guest's.
func disposition(name string) string {
	base := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '/' || r == '\\' || r == '"' {
			return '_'
		}
		return r
	}, path.Base(name))
	if v := mime.FormatMediaType("attachment", map[string]string{"filename": sandbox.SafeText(base, 255)}); v != "" {
		return v
	}
	return "attachment"
}

func tagMatches(header, tag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		if c := strings.TrimSpace(candidate); c == "*" || strings.TrimPrefix(c, "W/") == tag {
			return true
		}
	}
	return false
}

// rangeOf reads the Range header. A header of another form is ignored, as HTTP
// wants it; several ranges are answered with the whole file.
func (c *call) rangeOf(size int64, tag string) (part span, partial bool, err error) {
	whole := span{0, size}
	spec, ok := strings.CutPrefix(c.r.Header.Get("Range"), "bytes=")
	if cond := c.r.Header.Get("If-Range"); !ok || (cond != "" && cond != tag) {
		return whole, false, nil
	}
	from, to, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || strings.Contains(spec, ",") {
		return whole, false, nil
	}
	first, last, ok := offsets(from, to, size)
	if !ok {
		return whole, false, nil
	}
	last = min(last, size-1)
	if first > last {
		return whole, false, withStatus(http.StatusRequestedRangeNotSatisfiable, "Range", fmt.Sprintf("the file has %d bytes", size), "")
	}
	return span{first, last - first + 1}, true, nil
}

// offsets reads "FIRST-LAST", "FIRST-" and "-LAST_N".
func offsets(from, to string, size int64) (first, last int64, ok bool) {
	first, okFirst := parseOffset(from)
	last, okLast := parseOffset(to)
	switch {
	case from == "":
		return max(0, size-last), size - 1, okLast
	case to == "":
		return first, size - 1, okFirst
	}
	return first, last, okFirst && okLast && first <= last
}

func parseOffset(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 62)
	return int64(n), err == nil //nolint:gosec // 62 bits
}

func (c *call) writeFile(at place) error {
	if c.r.Header.Get("Content-Encoding") != "" {
		return withStatus(http.StatusUnsupportedMediaType, "", "compressed bodies are not accepted", "leave Content-Encoding out")
	}
	if c.r.Header.Get("Content-Range") != "" {
		return badRequest("Content-Range", "a part of a file cannot be written", "send the whole file")
	}
	in := c.timed(c.w, c.r.Body)
	err := at.In(c.r.Context(), at.path, func(to *living.Incoming) error {
		return to.WriteFile(c.r.Context(), at.path, c.query.mode("mode"), c.r.ContentLength, in)
	})
	if err != nil {
		return in.reason(err)
	}
	return c.statFile(at)
}

func (c *call) removeFile(at place) error { return c.done(at.Remove(c.r.Context(), at.path)) }

func (c *call) statFile(at place) error { return c.ok(at.Stat(c.r.Context(), at.path)) }

func (c *call) listFiles(at place) error {
	list, err := at.List(c.r.Context(), at.path, int(c.query.int("depth")), int(c.query.int("limit")))
	return c.ok(shownList(list), err)
}

func (c *call) makeDirectory(s *living.Sandbox, b *mkdirBody) error {
	b.Mode = cmp.Or(b.Mode, 0o755)
	if b.Mode > 0o777 {
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "mode", Message: "is more than the permission bits", Hint: "it is a plain number: 493 is 0755"}
	}
	if _, err := guestPath("path", b.Path); err != nil {
		return err
	}
	return c.done(s.Mkdir(c.r.Context(), b.Path, b.Mode))
}

func (c *call) moveFile(s *living.Sandbox, b *moveBody) error {
	for field, name := range map[string]string{"from": b.From, "to": b.To} {
		if _, err := guestPath(field, name); err != nil {
			return err
		}
	}
	return c.done(s.Move(c.r.Context(), b.From, b.To))
}

func (c *call) watchFiles(at place) error {
	e := c.newEvents(c.w)
	defer e.end()
	err := at.Watch(c.r.Context(), at.path, c.query.bool("recursive"), func(event sandbox.FileEvent) error {
		if event.Kind == watchReady {
			return e.send(watchReady, "", struct{}{})
		}
		return e.send("change", "", event)
	})
	switch {
	case c.r.Context().Err() != nil: // the client is gone, or its key
		return c.cutOff(e, context.Cause(c.r.Context()))
	case err != nil && sandbox.AsError(err).Code != sandbox.CodeGone, !e.started():
		return c.cutOff(e, err)
	}
	return e.send("end", "", struct{}{})
}

// watchReady is the first event of a watch: what happens from now on is seen.
const watchReady = "ready"

func (c *call) listChanges(s *living.Sandbox) error {
	changes, err := s.Changes(c.r.Context(), int(c.query.int("limit")))
	return c.ok(shownList(changes), err)
}

// shownList makes an empty list one in JSON, too.
func shownList[T any](l sandbox.Listing[T]) sandbox.Listing[T] {
	if l.Items == nil {
		l.Items = []T{}
	}
	return l
}
