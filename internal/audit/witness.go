package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Witness keeps checkpoints out of reach of who could rewrite the log. It may be asked
// from one goroutine at a time.
type Witness interface {
	// Keep keeps a checkpoint, a signed note. It ends with its context.
	Keep(ctx context.Context, signed string) error
	// String says which one it is, without secrets.
	String() string
}

// NewWitness returns a witness: a file, of which a path begins with "/", to which
// checkpoints are added, or an address of http or https to which each is posted.
func NewWitness(where string) Witness {
	if strings.HasPrefix(where, "/") {
		return fileWitness(where)
	}
	return urlWitness(where)
}

type fileWitness string

func (f fileWitness) String() string { return string(f) }

func (f fileWitness) Keep(_ context.Context, signed string) error {
	return appendNote(string(f), signed)
}

type urlWitness string

func (u urlWitness) String() string {
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(string(u), "https://"), "http://"), "/")
	return host[strings.LastIndexByte(host, '@')+1:]
}

func (u urlWitness) Keep(ctx context.Context, signed string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, string(u), strings.NewReader(signed))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "text/plain; charset=utf-8")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // nothing in it matters
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("it answered %s", answer.Status)
	}
	return nil
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
	boxes   []chan string   // of one place each
	ctx     context.Context //nolint:containedctx // it ends what is under way
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newTeller(all []Witness, log *slog.Logger) *teller {
	t := &teller{log: log}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for _, w := range all {
		box := make(chan string, 1)
		t.boxes = append(t.boxes, box)
		t.running.Go(func() { t.attend(w, box) })
	}
	return t
}

// tell is called by one goroutine. It does not wait.
func (t *teller) tell(signed string) {
	for _, box := range t.boxes {
		select {
		case <-box: // nobody has taken it: the new one is better
		default:
		}
		box <- signed
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
func (t *teller) attend(w Witness, box <-chan string) {
	for signed := range box {
		pause := witnessPause
		for {
			err := t.once(w, signed)
			if err == nil {
				break
			}
			if t.ctx.Err() != nil {
				t.log.Error("a witness was not told of the last checkpoint", "witness", w.String(), "error", err)
				return
			}
			t.log.Warn("a witness could not be told of a checkpoint; it is tried again", "witness", w.String(), "error", err)
			select {
			case newer, open := <-box:
				if !open { // the log is closed: a last time
					if err := t.once(w, signed); err != nil {
						t.log.Error("a witness was not told of the last checkpoint", "witness", w.String(), "error", err)
					}
					return
				}
				signed = newer
			case <-time.After(pause):
			case <-t.ctx.Done():
			}
			pause = min(2*pause, witnessMost)
		}
	}
}

func (t *teller) once(w Witness, signed string) error {
	ctx, cancel := context.WithTimeout(t.ctx, witnessTimeout)
	defer cancel()
	err := w.Keep(ctx, signed)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errors.New("it did not answer in time")
	}
	return err
}
