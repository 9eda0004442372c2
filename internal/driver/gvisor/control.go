package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"pinfold/sandbox"
)

// askTimeout bounds a question to a sentry, which may hang, be paused or be broken.
const askTimeout = 500 * time.Millisecond

// maxAnswer bounds its answer: more than the list of all processes that there can be.
const maxAnswer = 4 << 20

// What sentries are asked, in runsc's own protocol (gvisor.dev/gvisor/pkg/urpc): JSON.
const (
	askProcesses = "containerManager.Processes" // of a container, by its name
	askPause     = "containerManager.Pause"     // returns when all tasks stand still
	askResume    = "containerManager.Resume"
)

// errUnasked says that a sentry does not know the question.
var errUnasked = errors.New("the sentry cannot be asked")

// ask asks the sentry at a socket. What it answers is data.
func ask(ctx context.Context, socket, method string, arg, result any) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnasked, err)
	}
	defer conn.Close() //nolint:errcheck // it has answered
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	question := struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{method, arg}
	if err := json.NewEncoder(conn).Encode(question); err != nil {
		return err
	}
	answer := struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
		Result  any    `json:"result"`
	}{Result: result}
	err = json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer)
	switch {
	case err != nil:
		return fmt.Errorf("the sentry's answer: %w", err)
	case !answer.Success:
		return errors.New("the sentry answers: " + sandbox.SafeText(answer.Err, 200))
	}
	return nil
}

// guestTasks asks how many tasks the guest has: all but the first process's, which is the
// agent. The answer counts for nothing else.
func guestTasks(socket string) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	var processes []struct {
		PID     int   `json:"pid"`
		Threads []int `json:"threads"`
	}
	if err := ask(ctx, socket, askProcesses, containerID, &processes); err != nil {
		return 0, err
	}
	n := int64(0)
	for _, p := range processes {
		if p.PID != 1 {
			n += int64(len(p.Threads))
		}
	}
	return n, nil
}
