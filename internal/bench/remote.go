package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"pinfold/sandbox"
)

// maxAnswer bounds what is read from a service.
const maxAnswer = 4 << 20

// ask sends a request with a JSON body and reads a JSON answer into out.
func ask(ctx context.Context, rt http.RoundTripper, method, url string, head map[string]string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range head {
		req.Header.Set(k, v)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		err := fmt.Errorf("%s %s: %s: %s", method, req.URL.Path, resp.Status, sandbox.SafeText(strings.TrimSpace(string(answer)), 200))
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
			return &refusedError{err}
		}
		return err
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// refusedError is a service's word that it has no room now.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// goJudge is a go-judge (https://github.com/criyle/go-judge): POST /run with a
// command, its descriptors and its limits.
func (s *session) goJudge() *contender {
	base := strings.TrimSuffix(s.o.GoJudge, "/")
	return &contender{name: "go-judge", note: "prepared containers, used again", run: func(ctx context.Context, w workload) error {
		request := map[string]any{"cmd": []any{map[string]any{
			"args": w.args, "env": []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "MPLCONFIGDIR=/tmp"},
			"files": []any{
				map[string]any{"content": ""}, map[string]any{"name": "stdout", "max": 10240}, map[string]any{"name": "stderr", "max": 10240},
			},
			"cpuLimit": int64(30e9), "clockLimit": int64(60e9), "memoryLimit": memoryLimit, "procLimit": processLimit,
		}}}
		var answer []struct {
			Status     string            `json:"status"`
			ExitStatus int               `json:"exitStatus"`
			Error      string            `json:"error"`
			Files      map[string]string `json:"files"`
		}
		if err := ask(ctx, s.o.Transport, http.MethodPost, base+"/run", nil, request, &answer); err != nil {
			return err
		}
		switch {
		case len(answer) != 1:
			return errors.New("it answered for another number of commands")
		case answer[0].Status != "Accepted" || answer[0].ExitStatus != 0:
			return fmt.Errorf("%s: %s %s", sandbox.SafeText(answer[0].Status, 40), sandbox.SafeText(answer[0].Error, 100), sandbox.SafeText(answer[0].Files["stderr"], 200))
		case strings.TrimSpace(answer[0].Files["stdout"]) != w.want:
			return fmt.Errorf("it printed \"%s\"", sandbox.SafeText(answer[0].Files["stdout"], 100))
		}
		return nil
	}}
}
