package telemetry

import (
	"encoding/binary"
	"strings"
	"time"
)

// Spans travel as protocol buffers. The few messages that a span needs are
// written here by hand: the libraries for it (with gRPC, which comes with them)
// would cost every start of the program a millisecond or two.
// Format: opentelemetry-proto, trace/v1/trace.proto, and the protocol buffers'
// encoding, https://protobuf.dev/programming-guides/encoding/.

type (
	traceID [16]byte
	spanID  [8]byte
)

// span is one finished span.
type span struct {
	trace      traceID
	id, parent spanID
	name       string
	server     bool // it answers a request from outside
	failed     bool
	start, end time.Time
	attributes []attribute
}

// attribute is a text or, where text is empty, a number.
type attribute struct {
	key, text string
	number    int64
}

// Wire types.
const (
	wireVarint = 0
	wireFixed  = 1
	wireBytes  = 2
)

// message is a protocol buffer being written.
type message []byte

func (m *message) tag(field, wire int) { m.varint(uint64(field)<<3 | uint64(wire)) } //nolint:gosec // small constants

func (m *message) varint(v uint64) { *m = binary.AppendUvarint(*m, v) }

func (m *message) number(field int, v uint64) {
	m.tag(field, wireVarint)
	m.varint(v)
}

func (m *message) fixed(field int, v uint64) {
	m.tag(field, wireFixed)
	*m = binary.LittleEndian.AppendUint64(*m, v)
}

func (m *message) bytes(field int, b []byte) {
	m.tag(field, wireBytes)
	m.varint(uint64(len(b)))
	*m = append(*m, b...)
}

// text writes a string. One that is not UTF-8 would make the collector refuse
// the whole batch.
func (m *message) text(field int, s string) { m.bytes(field, []byte(strings.ToValidUTF8(s, "?"))) }

// attribute writes a KeyValue. Texts are cut: they must not fill the
// collector, whoever chose them.
func (m *message) attribute(field int, a attribute) {
	var value, pair message
	if a.text != "" {
		value.text(1, a.text[:min(len(a.text), maxAttribute)])
	} else {
		value.number(3, uint64(a.number)) //nolint:gosec // two's complement is what int64 is in the format
	}
	pair.text(1, a.key)
	pair.bytes(2, value)
	m.bytes(field, pair)
}

func (m *message) span(field int, s span) {
	const internal, server, statusError = 1, 2, 2
	var b message
	b.bytes(1, s.trace[:])
	b.bytes(2, s.id[:])
	if s.parent != (spanID{}) {
		b.bytes(4, s.parent[:])
	}
	b.text(5, s.name)
	kind := uint64(internal)
	if s.server {
		kind = server
	}
	b.number(6, kind)
	b.fixed(7, uint64(s.start.UnixNano())) //nolint:gosec // after 1970
	b.fixed(8, uint64(s.end.UnixNano()))   //nolint:gosec // after 1970
	for _, a := range s.attributes {
		b.attribute(9, a)
	}
	if s.failed {
		var status message
		status.number(3, statusError)
		b.bytes(15, status)
	}
	m.bytes(field, b)
}

// encode makes an ExportTraceServiceRequest.
func encode(resource []attribute, spans []span) []byte {
	var about, scope, scoped, all, request message
	for _, a := range resource {
		about.attribute(1, a)
	}
	scope.text(1, "pinfold")
	scoped.bytes(1, scope)
	for _, s := range spans {
		scoped.span(2, s)
	}
	all.bytes(1, about)
	all.bytes(2, scoped)
	request.bytes(1, all)
	return request
}
