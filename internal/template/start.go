package template

import (
	"strconv"
	"strings"
	"time"

	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Bounds on what living sandboxes of an image begin with.
const (
	maxStartLine = 64 << 10 // bytes
	// UsualReady and MaxReady are how long it may take until it is ready, where nothing
	// else is said, and at most.
	UsualReady = time.Minute
	MaxReady   = 10 * time.Minute
)

// Labels of an image that say what its living sandboxes begin with: no field of an OCI
// configuration means that. A save has them, so that a load makes the same image.
const (
	labelStart  = "pinfold.start"
	labelReady  = "pinfold.ready"
	labelWithin = "pinfold.ready-within-ms"
)

type labels struct {
	Start  string `json:"pinfold.start,omitempty"`
	Ready  string `json:"pinfold.ready,omitempty"`
	Within string `json:"pinfold.ready-within-ms,omitempty"`
}

func labelsOf(s image.Start) (l labels) {
	l = labels{Start: s.Command, Ready: s.Ready}
	if s.WithinMS != 0 {
		l.Within = strconv.FormatInt(s.WithinMS, 10)
	}
	return l
}

// start is what the labels say. What is no number is a time that CheckStart refuses.
func (l labels) start() image.Start {
	s := image.Start{Command: l.Start, Ready: l.Ready}
	if l.Within == "" {
		return s
	}
	n, err := strconv.ParseInt(l.Within, 10, 64)
	if err != nil {
		n = -1
	}
	s.WithinMS = n
	return s
}

// CheckStart refuses what could not be carried out as it is written. The error is a
// *sandbox.Error whose field is start, ready or limits.ready.
func CheckStart(s image.Start) error {
	bad := func(field, why, hint string) error {
		return (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: why}).WithHint(hint)
	}
	for _, line := range []struct{ field, text string }{{"start", s.Command}, {"ready", s.Ready}} {
		if line.text != "" && strings.TrimSpace(line.text) == "" || len(line.text) > maxStartLine || strings.ContainsRune(line.text, 0) {
			return bad(line.field, "is no line for a shell", "write a command, or leave it out")
		}
	}
	switch {
	case s.Ready != "" && s.Command == "":
		return bad("ready", "says when what start begins is ready, and there is no start", "write start: COMMAND, too, or leave it out")
	case s.WithinMS != 0 && s.Ready == "":
		return bad("limits.ready", "is how long ready may take, and there is no ready", "write ready: COMMAND, too, or leave it out")
	case s.Ready != "" && (s.WithinMS < 1 || s.WithinMS > MaxReady.Milliseconds()):
		return bad("limits.ready", "is no such time, or is too long: at most "+sandbox.FormatQuantity(MaxReady.Milliseconds(), sandbox.UnitMilliseconds), "write it like 1m")
	}
	return nil
}
