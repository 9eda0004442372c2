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

// guestTasks asks the sentry at a socket how many tasks the guest has: all but the first
// process's, which is the agent. It speaks runsc's own protocol (gvisor.dev/gvisor/pkg/urpc),
// which is JSON; what it says is data, and counts only for how many tasks there are.
func guestTasks(socket string) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // it has answered
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if err := json.NewEncoder(conn).Encode(map[string]string{"method": "containerManager.Processes", "arg": containerID}); err != nil {
		return 0, err
	}
	var answer struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
		Result  []struct {
			PID     int   `json:"pid"`
			Threads []int `json:"threads"`
		} `json:"result"`
	}
	err = json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the sentry's answer: %w", err)
	case !answer.Success:
		return 0, errors.New("the sentry answers: " + sandbox.SafeText(answer.Err, 200))
	}
	n := int64(0)
	for _, p := range answer.Result {
		if p.PID != 1 {
			n += int64(len(p.Threads))
		}
	}
	return n, nil
}
