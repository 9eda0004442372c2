package wire

// The messages of what a living sandbox is asked for: terminals, listings,
// moves, watches and connections.

// TerminalSize is a terminal's size in characters, each from 1 to MaxTerminal.
type TerminalSize struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Valid says whether both numbers are within their bounds.
func (t TerminalSize) Valid() bool {
	return t.Cols >= 1 && t.Cols <= MaxTerminal && t.Rows >= 1 && t.Rows <= MaxTerminal
}

// ListRequest lists what is below Dir. Links are not followed.
type ListRequest struct {
	Dir   string `json:"dir"`
	Depth int    `json:"depth"` // 1: the directory's own entries
	Max   int    `json:"max"`   // the most entries to list
}

// Entry is one entry of a listing.
type Entry struct {
	Path    string `json:"path"` // relative to Dir
	Type    string `json:"type"`
	Size    int64  `json:"size"`
	Mode    uint32 `json:"mode"`
	MtimeNS int64  `json:"mtime_ns"`
	UID     int    `json:"uid"`
	GID     int    `json:"gid"`
	Target  string `json:"target,omitempty"` // of a symbolic link: what the guest wrote there
}

// MoveRequest gives From the name To. Missing directories above To are made. A
// regular file at To is replaced, anything else there is a fault.
type MoveRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// WatchRequest watches a directory, and with Recursive all below it.
type WatchRequest struct {
	Dir       string `json:"dir"`
	Recursive bool   `json:"recursive,omitempty"`
}

// WatchEvent is one change. On stream 1 of a watch each is one JSON object on a
// line of its own, of at most MaxWatchLine bytes. WatchReady comes first.
type WatchEvent struct {
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"` // relative to the directory; empty for ready and overflow
	Dir  bool   `json:"dir,omitempty"`  // it is a directory
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

// MaxWatchLine is the most bytes of one change as a line.
const MaxWatchLine = 16 << 10

// DialRequest connects to a TCP server on 127.0.0.1, or else on ::1. The
// channel lives until both directions have ended.
type DialRequest struct {
	Port int `json:"port"`
}
