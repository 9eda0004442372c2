package wire

import "encoding/binary"

// The messages of what a living sandbox is asked for: terminals, listings,
// moves, watches and connections.

// TerminalSize is a terminal's size in characters, each from 1 to MaxTerminal.
type TerminalSize struct {
	Cols int
	Rows int
}

// Valid says whether both numbers are within their bounds.
func (t TerminalSize) Valid() bool {
	return t.Cols >= 1 && t.Cols <= MaxTerminal && t.Rows >= 1 && t.Rows <= MaxTerminal
}

// ListRequest lists what is below Dir. Links are not followed.
type ListRequest struct {
	Dir   string
	Depth int // 1: the directory's own entries
	Max   int // the most entries to list
}

// Entry is one entry of a listing.
type Entry struct {
	Path    string // relative to Dir
	Type    string
	Size    int64
	Mode    uint32
	MtimeNS int64
	UID     int
	GID     int
	Target  string // of a symbolic link: what the guest wrote there
}

// MoveRequest gives From the name To. Missing directories above To are made. A
// regular file at To is replaced, anything else there is a fault.
type MoveRequest struct {
	From string
	To   string
}

// RestoreRequest makes the files of a tree (package filetree) that comes on stream 0. Each
// place of the tree is a directory that exists; what is in one that Places does not name is
// a fault. Files replace what has their names. Outcome.Size is how many entries were made;
// after a fault some are.
type RestoreRequest struct {
	Places []RestorePlace
}

// RestorePlace is where a place of a tree is, as an absolute path.
type RestorePlace struct {
	Name string
	Path string
}

// WatchRequest watches a directory, and with Recursive all below it.
type WatchRequest struct {
	Dir       string
	Recursive bool
}

// WatchEvent is one change. WatchReady comes first. See AppendWatchEvent for
// how they travel.
type WatchEvent struct {
	Kind string
	Path string // relative to the directory; empty for ready and overflow
	Dir  bool   // it is a directory
}

// Kinds of changes.
const (
	WatchReady     = "ready" // the watch is in place: what happens from here on is seen
	WatchCreated   = "created"
	WatchModified  = "modified" // its content
	WatchRemoved   = "removed"
	WatchMovedFrom = "moved_from"
	WatchMovedTo   = "moved_to"
	// WatchOverflow says that changes were lost, because nobody read them in
	// time, there are too many directories, or a name cannot be printed.
	WatchOverflow = "overflow"
)

// MaxWatchEvent is the most bytes of one change as a message.
const MaxWatchEvent = 8 << 10

// AppendWatchEvent appends a change to b as it travels on stream 1 of a watch:
// its length in two bytes, and then the message.
func AppendWatchEvent(b []byte, e *WatchEvent) []byte {
	return appendRecord(b, e) // at most MaxWatchEvent: its path has at most MaxPath bytes
}

// CutWatchEvent returns the first change's message and what follows it; whole
// is false while bytes of it are still to come. A length that cannot be is a
// *Violation.
func CutWatchEvent(b []byte) (message, rest []byte, whole bool, err error) {
	return cutRecord(b, MaxWatchEvent, "a change that is too long")
}

// appendRecord appends a message to b as one of many on a stream: its length in two
// bytes, and then the message.
func appendRecord(b []byte, m Message) []byte {
	text := Encode(m)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text))) //nolint:gosec // the caller's bound
	return append(b, text...)
}

// cutRecord returns the first of such messages, of at most most bytes, and what follows it.
func cutRecord(b []byte, most int, tooLong string) (message, rest []byte, whole bool, err error) {
	if len(b) < 2 {
		return nil, b, false, nil
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > most {
		return nil, nil, false, violation(tooLong)
	}
	if len(b)-2 < n {
		return nil, b, false, nil
	}
	return b[2 : 2+n], b[2+n:], true, nil
}

// DialRequest connects to a TCP server on 127.0.0.1, or else on ::1. The
// channel lives until both directions have ended.
type DialRequest struct {
	Port int
}
