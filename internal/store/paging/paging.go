// Package paging holds what every store of objects does alike when it hands
// out a list in pages: the bounds of a query, and the cursor. A cursor is the
// place of the last object that was given out, not a count of objects, so that
// objects that come or go meanwhile move nothing. It knows no database.
package paging

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Bounds of a query.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
	maxChoices   = 16 // states or statuses in one query; there are fewer of them
	maxIDBytes   = 200
	maxCursor    = 400 // characters
)

// Place is where an object stands in the order of a list: by time, then by id.
type Place struct {
	At int64 // nanoseconds since 1970
	ID string
}

// Compare returns -1, 0 or 1 as p comes before, at or after other in time.
func (p Place) Compare(other Place) int {
	switch {
	case p.At < other.At:
		return -1
	case p.At > other.At:
		return 1
	}
	return strings.Compare(p.ID, other.ID)
}

// Plan is a query that has been checked.
type Plan struct {
	Limit int
	After *Place // nil: from the beginning
}

// Check returns the plan for a query, or an error that names the field at fault.
func Check(q records.Query) (Plan, error) {
	p := Plan{Limit: q.Limit}
	switch {
	case q.Limit == 0:
		p.Limit = DefaultLimit
	case q.Limit < 0 || q.Limit > MaxLimit:
		return p, refuse("limit", fmt.Sprintf("%d is outside 1 to %d", q.Limit, MaxLimit), "")
	}
	if len(q.States) > maxChoices || len(q.Statuses) > maxChoices {
		return p, refuse("state", fmt.Sprintf("more than %d states or statuses", maxChoices), "")
	}
	if len(q.RunStates) > maxChoices || len(q.Languages) > maxChoices {
		return p, refuse("language", fmt.Sprintf("more than %d languages or states", maxChoices), "")
	}
	if len(q.Metadata) > sandbox.MaxMetadata {
		return p, refuse("metadata", fmt.Sprintf("more than %d pairs", sandbox.MaxMetadata), "")
	}
	if q.Cursor != "" {
		after, ok := decode(q.Cursor, q.Oldest)
		if !ok {
			return p, refuse("cursor", "is not a cursor of this list", "take it from next of the page before, with the same order")
		}
		p.After = &after
	}
	return p, nil
}

// Cursor returns the cursor of what follows p.
func Cursor(p Place, oldest bool) string {
	return base64.RawURLEncoding.EncodeToString([]byte(order(oldest) + strconv.FormatInt(p.At, 10) + "." + p.ID))
}

func decode(cursor string, oldest bool) (Place, bool) {
	if len(cursor) > maxCursor {
		return Place{}, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return Place{}, false
	}
	rest, ok := strings.CutPrefix(string(raw), order(oldest))
	if !ok {
		return Place{}, false
	}
	at, id, ok := strings.Cut(rest, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	return Place{At: n, ID: id}, ok && err == nil && id != "" && len(id) <= maxIDBytes
}

func order(oldest bool) string {
	if oldest {
		return "o"
	}
	return "n"
}

// CheckID refuses an object that could not be listed or found again.
func CheckID(what, tenant, id string) error {
	if tenant == "" || id == "" || len(tenant) > maxIDBytes || len(id) > maxIDBytes {
		return &sandbox.Error{Code: sandbox.CodeInternal, Message: fmt.Sprintf("a %s needs a tenant and an id of at most %d bytes", what, maxIDBytes)}
	}
	return nil
}

// Nanos returns t in nanoseconds since 1970. Times outside what 64 bits hold
// (1678 to 2262) become the nearest that fits.
func Nanos(t time.Time) int64 {
	const least, most = -1 << 63, 1<<63 - 1
	switch {
	case t.Before(time.Unix(0, least)):
		return least
	case t.After(time.Unix(0, most)):
		return most
	}
	return t.UnixNano()
}

// Time is the reverse of Nanos, in UTC.
func Time(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }

// NotFound says that a tenant has no such object; it tells nothing about
// other tenants.
func NotFound(what, id string) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeNotFound, Message: fmt.Sprintf("no %s %q", what, sandbox.SafeText(id, 60)),
		Hint: "it may have been removed after the time for which ended ones are kept",
	}
}

// InUse says that an id is taken.
func InUse(what, id string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeConflict, Message: fmt.Sprintf("there is a %s %q already", what, sandbox.SafeText(id, 60))}
}

// NoResult says that a run was to be finished with nothing.
func NoResult(id string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeInternal, Message: fmt.Sprintf("run %q was to be finished without a result", sandbox.SafeText(id, 60))}
}

func refuse(field, message, hint string) error {
	return &sandbox.Error{Code: sandbox.CodeRequestInvalid, Field: field, Message: message, Hint: hint}
}
