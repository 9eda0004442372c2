package vm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

// Job is one program that the guest runs.
type Job struct {
	Name string
	Path string // in the guest
	Dir  string // where it runs; /tmp if it is empty
	Args []string
	Env  []string
	UID  int // also the group
	// Delegate puts the program into a cgroup of its own that belongs to its
	// user, as systemd does with Delegate=yes.
	Delegate bool
	Timeout  time.Duration
}

// DelegatedScope is the cgroup of a job with Delegate, below /sys/fs/cgroup.
const DelegatedScope = "user.slice/run.scope"

// Event is one message from the guest, in the order of Seq.
type Event struct {
	Seq    int
	Job    string
	Kind   EventKind
	Output []byte   `json:",omitempty"` // of EventOutput, stdout and stderr together
	Exit   int      `json:",omitempty"` // of EventExit; -1: a signal or the time limit
	Error  string   `json:",omitempty"` // of EventExit: it could not start, or how it ended
	Left   []string `json:",omitempty"` // of EventExit: cgroups that were not there before
	Took   time.Duration
}

// EventKind says what an Event tells.
type EventKind string

// What the guest reports.
const (
	EventStart  EventKind = "start"
	EventOutput EventKind = "output"
	EventExit   EventKind = "exit"
	EventDone   EventKind = "done" // all jobs have run
)

// Frames travel over a serial port of their own, one line each: a mark, the
// payload's CRC-32 and the payload, which is JSON and so has no line break.
// Lines that are anything else are noise.
const (
	frameMark = "PINFOLD"
	maxFrame  = 256 << 10
	// MaxOutput is the most that one Event carries.
	MaxOutput = 32 << 10
)

// WriteEvent sends one event.
func WriteEvent(w io.Writer, e Event) error {
	payload, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s %08x %s\n", frameMark, crc32.ChecksumIEEE(payload), payload)
	return err
}

// readEvents calls f for each event until EventDone. That events got lost is
// an error.
func readEvents(r io.Reader, f func(Event)) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxFrame)
	for next := 0; s.Scan(); {
		e, ok := parseEvent(s.Bytes())
		if !ok {
			continue
		}
		if e.Seq != next {
			return fmt.Errorf("event %d came after %d", e.Seq, next-1)
		}
		next++
		f(e)
		if e.Kind == EventDone {
			return nil
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("reading the guest's events: %w", err)
	}
	return errors.New("the guest ended before its jobs were done")
}

func parseEvent(line []byte) (e Event, ok bool) {
	mark, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte{'\r'}), []byte{' '})
	sum, payload, _ := bytes.Cut(rest, []byte{' '})
	if string(mark) != frameMark || string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(payload)) {
		return Event{}, false
	}
	return e, json.Unmarshal(payload, &e) == nil
}
