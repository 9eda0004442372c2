package api

import (
	"bufio"
	"net/http"
	"reflect"
	"strconv"

	"pinfold/internal/archive"
	"pinfold/internal/engine/living"
)

// archiveBuffer gathers the small writes of headers between the large ones of
// contents.
const archiveBuffer = 64 << 10

func (s *server) archiveRoutes() []route {
	const path = "/v1/sandboxes/{id}/archive"
	var formats []string
	var answers []reply
	for _, f := range archive.Formats() {
		formats = append(formats, string(f))
		answers = append(answers, reply{http.StatusOK, f.MediaType(), nil, ""})
	}
	answers[0].doc = "The archive. The trailer X-Archive-Skipped counts what was left out."
	params := []param{
		{name: "path", kind: kindText, fallback: ".", doc: "The directory."},
		{name: "format", kind: kindText, words: formats, fallback: string(archive.Tar), doc: "The kind of archive."},
	}
	return []route{
		{
			method: http.MethodGet, path: path, id: "readArchive", tag: "Files", summary: "Read a directory as an archive", scopes: []string{scopeSandbox, scopeRead},
			description: "Regular files and directories, with names relative to the directory; links and everything else are left out, and so is what the sandbox's output gate withholds; the trailer X-Pinfold-Gate says what the gate has found. Sparse files count as long as they look: files that have more bytes together than the sandbox's disk are refused as too_large.",
			params:      params, answers: answers, errors: []int{http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests},
			example: `curl -s "$SERVER/v1/sandboxes/$ID/archive?path=out&format=tar.gz" -H "Authorization: Bearer $KEY" -o out.tar.gz`,
			handle:  on((*call).place, (*call).readArchive),
		},
		{
			method: http.MethodPut, path: path, id: "writeArchive", tag: "Files", summary: "Unpack an archive into a directory", scopes: []string{scopeSandbox},
			description: "The directory is made when it is missing. An archive that holds anything but regular files and directories under plain names, names something twice or grows too much is refused as unsafe_archive, and changes nothing.",
			params:      params, body: body{raw: typeBytes, doc: "The archive."},
			answers: []reply{{http.StatusOK, typeJSON, reflect.TypeFor[archive.Summary](), "What was unpacked."}},
			errors:  []int{http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInsufficientStorage},
			example: `tar c data | curl -s -T - "$SERVER/v1/sandboxes/$ID/archive?format=tar" -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).place, (*call).writeArchive),
		},
	}
}

func (c *call) readArchive(at place) error {
	format, err := archive.ParseFormat(c.query.text("format"))
	if err != nil {
		return err
	}
	return at.Out(c.r.Context(), at.path, func(files *living.Files) error { return c.pack(at, format, files) })
}

func (c *call) pack(at place, format archive.Format, files *living.Files) error {
	h := c.w.Header()
	out := newOutlet(c.w)
	late := bufio.NewWriterSize(&lateWriter{out: out, begin: func() {
		h.Set("Content-Type", format.MediaType())
		h.Set("Content-Disposition", disposition("sandbox."+string(format)))
		h.Set("Trailer", skippedTrailer)
		if files.Checked() {
			h.Add("Trailer", gateHeader)
		}
		c.w.WriteHeader(http.StatusOK)
	}}, archiveBuffer)
	summary, err := archive.Pack(c.r.Context(), files, at.path, format, archive.Limits{Bytes: at.Holds()}, late)
	if err == nil { // else what is in the buffer must not go out as the whole
		err = late.Flush()
	}
	if err != nil {
		return err
	}
	h.Set(skippedTrailer, strconv.Itoa(summary.Skipped))
	setGate(h, files.Outcome())
	return nil
}

// skippedTrailer says how much an archive lacks. It comes after the archive.
const skippedTrailer = "X-Archive-Skipped"

func (c *call) writeArchive(at place) error {
	format, err := archive.ParseFormat(c.query.text("format"))
	if err != nil {
		return err
	}
	if c.r.Header.Get("Content-Encoding") != "" {
		return withStatus(http.StatusUnsupportedMediaType, "", "compressed bodies are not accepted", "say it with ?format=tar.gz")
	}
	in := c.timed(c.w, c.r.Body)
	var summary archive.Summary
	err = at.In(c.r.Context(), at.path, func(to *living.Incoming) (err error) {
		summary, err = archive.Unpack(c.r.Context(), in, at.path, format, archive.Limits{Dir: c.o.SpoolDir}, to)
		return err
	})
	return c.ok(summary, in.reason(err))
}
