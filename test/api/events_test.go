package api

import (
	"bufio"
	"strings"
	"testing"
)

// event is one server-sent event.
type event struct{ name, id, data string }

// eventReader reads events as a browser does.
type eventReader struct {
	from     stream
	lines    *bufio.Scanner
	comments int
}

func newEventReader(from stream) *eventReader {
	s := bufio.NewScanner(from.body)
	s.Buffer(nil, 8<<20)
	return &eventReader{from: from, lines: s}
}

// next returns the next event; its name is empty at the end.
func (r *eventReader) next(t *testing.T) event {
	t.Helper()
	if got := r.from.header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("%d, type %s", r.from.status, got)
	}
	var e event
	for r.lines.Scan() {
		line := r.lines.Text()
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if e != (event{}) {
				return e
			}
		case strings.HasPrefix(line, ":"):
			r.comments++
		case field == "event":
			e.name = value
		case field == "id":
			e.id = value
		case field == "data" && e.data == "":
			e.data = value
		default:
			t.Fatalf("a line that is none of ours: %.100q", line)
		}
	}
	return e
}

// all returns the rest.
func (r *eventReader) all(t *testing.T) []event {
	t.Helper()
	var all []event
	for e := r.next(t); e.name != ""; e = r.next(t) {
		all = append(all, e)
	}
	return all
}
