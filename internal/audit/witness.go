package audit

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Witness keeps checkpoints out of reach of who could rewrite the log. It may be asked
// from one goroutine at a time.
type Witness interface {
	// Keep keeps a checkpoint. It ends with its context. An error that is ErrContradicted
	// says that the witness has seen another history of the log.
	Keep(ctx context.Context, head Told) error
	// String says which one it is, without secrets.
	String() string
}

// Told is what witnesses are told.
type Told struct {
	Signed string // the checkpoint, a signed note
	Size   int64  // the entries that it is about
	// Prove proves that the tree of so many entries, 1 to Size, was continued by that of
	// Size: hashes in base64.
	Prove func(old int64) ([]string, error)
}

// NewWitness returns a witness: a file, of which a path begins with "/", to which
// checkpoints are added, or an address of http or https to which each is posted.
func NewWitness(where string) Witness {
	if strings.HasPrefix(where, "/") {
		return fileWitness(where)
	}
	return &urlWitness{url: where, has: unasked}
}

type fileWitness string

func (f fileWitness) String() string { return string(f) }

func (f fileWitness) Keep(_ context.Context, head Told) error {
	return appendNote(string(f), head.Signed)
}

// How witnesses are told.
const (
	witnessTimeout = 10 * time.Second
	witnessPause   = time.Second // after a failure, doubled up to the next
	witnessMost    = time.Minute
	witnessLast    = 5 * time.Second // for all, when the log is closed
	witnessLeft    = time.Second     // then, for those that must notice that it is over
)

// teller tells witnesses of checkpoints, each in its own time. One that does not keep up
// gets the newest: it proves all that came before.
type teller struct {
	log     *slog.Logger
	boxes   []chan Told     // of one place each
	ctx     context.Context //nolint:containedctx // it ends what is under way
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newTeller(all []Witness, log *slog.Logger) *teller {
	t := &teller{log: log}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for _, w := range all {
		box := make(chan Told, 1)
		t.boxes = append(t.boxes, box)
		t.running.Go(func() { t.attend(w, box) })
	}
	return t
}

// tell is called by one goroutine. It does not wait.
func (t *teller) tell(head Told) {
	for _, box := range t.boxes {
		select {
		case <-box: // nobody has taken it: the new one is better
		default:
		}
		box <- head
	}
}

// end gives what was not told yet a last chance. A file on a disk that hangs cannot be left
// by who writes to it: then its goroutine is left behind.
func (t *teller) end() {
	defer t.cancel()
	for _, box := range t.boxes {
		close(box)
	}
	over := make(chan struct{})
	go func() { t.running.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(witnessLast):
		t.cancel()
		select {
		case <-over:
		case <-time.After(witnessLeft):
			t.log.Error("a witness hangs and was not told of the last checkpoint")
		}
	}
}

// attend tells one witness.
func (t *teller) attend(w Witness, box <-chan Told) {
	for head := range box {
		pause := witnessPause
		for {
			err := t.once(w, head)
			if err == nil {
				break
			}
			if t.ctx.Err() != nil {
				t.log.Error("a witness was not told of the last checkpoint", "witness", w.String(), "error", err)
				return
			}
			if errors.Is(err, ErrContradicted) {
				t.log.Error("A WITNESS HAS SEEN ANOTHER HISTORY OF THE AUDIT LOG; it is told again", "witness", w.String(), "error", err)
			} else {
				t.log.Warn("a witness could not be told of a checkpoint; it is tried again", "witness", w.String(), "error", err)
			}
			select {
			case newer, open := <-box:
				if !open { // the log is closed: a last time
					if err := t.once(w, head); err != nil {
						t.log.Error("a witness was not told of the last checkpoint", "witness", w.String(), "error", err)
					}
					return
				}
				head = newer
			case <-time.After(pause):
			case <-t.ctx.Done():
			}
			pause = min(2*pause, witnessMost)
		}
	}
}

func (t *teller) once(w Witness, head Told) error {
	ctx, cancel := context.WithTimeout(t.ctx, witnessTimeout)
	defer cancel()
	err := w.Keep(ctx, head)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errors.New("it did not answer in time")
	}
	return err
}
