package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"pinfold/sandbox"
)

// RunRecord is what the server keeps of a run.
type RunRecord struct {
	ID        string           `json:"id"`
	State     sandbox.RunState `json:"state"`
	CreatedAt time.Time        `json:"created_at"` // when it was asked for
	// StartedAt is when it found room; zero unless it is running.
	StartedAt time.Time `json:"started_at,omitzero"`
	// FinishedAt is when it had its result; zero before.
	FinishedAt time.Time         `json:"finished_at,omitzero"`
	Language   string            `json:"language"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	// Status and Cause are the result's, empty while the run is under way.
	Status sandbox.Status    `json:"status,omitempty"`
	Cause  sandbox.CauseKind `json:"cause,omitempty"`
	// Result is nil while the run is under way, and in lists.
	Result *sandbox.Result `json:"result,omitempty"`
}

// GetRun returns what the server keeps of a run.
func (c *Client) GetRun(ctx context.Context, id string) (RunRecord, error) {
	return answered[RunRecord](ctx, c, runCall(http.MethodGet, id))
}

// runCall is a request about a run, which may be sent again.
func runCall(method, id string, path ...string) call {
	return call{method: method, path: append([]string{"v1", "runs", id}, path...), repeat: true, limit: maxResultBytes}
}

// Filter selects and orders what a list returns. The zero value means
// everything, the newest first.
type Filter struct {
	States    []sandbox.State    // of sandboxes
	RunStates []sandbox.RunState // of runs
	Statuses  []sandbox.Status   // of runs that have finished
	Languages []string           // of runs
	Since     time.Time          // runs that were asked for then or later
	Before    time.Time          // runs that were asked for before
	Metadata  map[string]string  // every pair must match
	Oldest    bool               // the oldest first
	PageSize  int                // objects asked for at once; 0: the server's choice
}

func (f Filter) query() url.Values {
	q := url.Values{}
	for _, s := range f.States {
		q.Add("state", string(s))
	}
	for _, s := range f.Statuses {
		q.Add("status", string(s))
	}
	for _, s := range f.RunStates {
		q.Add("state", string(s))
	}
	for _, l := range f.Languages {
		q.Add("language", l)
	}
	for name, t := range map[string]time.Time{"since": f.Since, "before": f.Before} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	for k, v := range f.Metadata {
		q.Add("metadata", k+"="+v)
	}
	if f.Oldest {
		q.Set("order", "oldest")
	}
	if f.PageSize > 0 {
		q.Set("limit", fmt.Sprint(f.PageSize))
	}
	return q
}

// Runs returns the runs that match, page by page as they are asked for. An
// error is the last pair.
func (c *Client) Runs(ctx context.Context, f Filter) iter.Seq2[RunRecord, error] {
	return pages[RunRecord](ctx, c, "runs", f)
}

// StartOptions say what else to do with a run that is started.
type StartOptions struct {
	// IdempotencyKey, when set, makes the run happen once however often it is
	// asked for: a second call returns the first one's run.
	IdempotencyKey string
}

// StartRun starts a run that goes on by itself and returns as soon as it is
// recorded: it has a result in the end, whatever becomes of this client.
func (c *Client) StartRun(ctx context.Context, spec sandbox.Spec, o StartOptions) (RunRecord, error) {
	if err := checkSendable(spec); err != nil {
		return RunRecord{}, err
	}
	k := call{method: http.MethodPost, path: []string{"v1", "runs"}, query: values("wait", "false"), json: spec, limit: maxResultBytes}
	if o.IdempotencyKey != "" {
		k.header, k.repeat = http.Header{"Idempotency-Key": {o.IdempotencyKey}}, true
	}
	return again[RunRecord](ctx, c, k)
}

// CancelRun ends a run, whoever waits for it, and returns it as it ended, with
// what it had printed. Cancelling one that has finished changes nothing.
func (c *Client) CancelRun(ctx context.Context, id string) (RunRecord, error) {
	return answered[RunRecord](ctx, c, runCall(http.MethodPost, id, "cancel"))
}

// ReplayRun runs again what a run was asked for, as a new run, and returns what became of
// it: Result.Replay says how it differs. The server must have kept the run's texts.
func (c *Client) ReplayRun(ctx context.Context, id string) (*sandbox.Result, error) {
	k := runCall(http.MethodPost, id, "replay")
	k.repeat = false // it would run once more
	return answered[*sandbox.Result](ctx, c, k)
}

// WaitRun waits until a run has finished. It survives broken connections.
func (c *Client) WaitRun(ctx context.Context, id string) (RunRecord, error) {
	k := runCall(http.MethodGet, id, "wait")
	k.query = values("timeout_ms", strconv.Itoa(waitMS))
	for {
		r, err := again[RunRecord](ctx, c, k)
		if err != nil || r.State == sandbox.RunFinished {
			return r, err
		}
	}
}

// WatchOptions say what of a run is wanted.
type WatchOptions struct {
	// Stdout and Stderr receive what the program prints, every byte that is kept
	// once, also over connections that break. Either may be nil.
	Stdout io.Writer
	Stderr io.Writer
	// State, when set, is told when the run begins to wait and to run.
	State func(RunRecord)
}

// WatchRun follows a run, also one that somebody else waits for, until it has
// finished, and returns what became of it.
func (c *Client) WatchRun(ctx context.Context, id string, o WatchOptions) (*sandbox.Result, error) {
	live := &watchedRun{liveRun: liveRun{out: sinks(o.Stdout, o.Stderr)}, state: o.State}
	err := reconnecting(ctx, func() (bool, error) {
		before := live.events
		k := runCall(http.MethodGet, id, "events")
		k.query = offsets(live.out)
		err := c.stream(ctx, k, live)
		return live.events > before, err
	})
	if err != nil {
		return nil, err
	}
	return live.result, live.unseen()
}

// watchedRun takes the events of a run that somebody watches.
type watchedRun struct {
	liveRun

	events int
	state  func(RunRecord)
}

func (w *watchedRun) take(e event) (last bool, err error) {
	w.events++
	if e.name != "state" || w.state == nil {
		return w.liveRun.take(e)
	}
	var r RunRecord
	if err := e.decode(&r); err != nil {
		return false, err
	}
	w.state(r)
	return false, nil
}

// unseen writes what came with the result only.
func (w *watchedRun) unseen() error {
	for i, text := range []string{w.result.Stdout, w.result.Stderr} {
		if w.out[i].at == 0 {
			if err := w.out[i].write([]byte(text)); err != nil {
				return err
			}
		}
	}
	return nil
}
