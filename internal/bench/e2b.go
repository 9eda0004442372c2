package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"pinfold/sandbox"
)

// envdPort is where E2B's agent listens in each of its sandboxes.
const envdPort = "49983"

// e2b is an E2B-compatible service: POST /sandboxes makes one, its agent envd
// runs a command (Connect's process.Process/Start in JSON), DELETE ends it. A
// turn is all three, as the others make a fresh sandbox too.
func (s *session) e2b() *contender {
	base := strings.TrimSuffix(s.o.E2B, "/")
	head := map[string]string{"X-API-Key": s.o.E2BKey}
	return &contender{name: "E2B-compatible", note: "as its operator says", run: func(ctx context.Context, w workload) (err error) {
		var box e2bSandbox
		in := map[string]any{"templateID": "base", "timeout": 120}
		if err := ask(ctx, s.o.Transport, http.MethodPost, base+"/sandboxes", head, in, &box); err != nil {
			return err
		}
		if box.ID == "" {
			return errors.New("it gave no sandboxID")
		}
		defer func() {
			gone := ask(context.WithoutCancel(ctx), s.o.Transport, http.MethodDelete, base+"/sandboxes/"+url.PathEscape(box.ID), head, nil, nil)
			err = errors.Join(err, gone)
		}()
		return box.run(ctx, s.o.Transport, base, w)
	}}
}

type e2bSandbox struct {
	ID     string `json:"sandboxID"`
	Token  string `json:"envdAccessToken"`
	Domain string `json:"domain"`
}

// envd is the address of the sandbox's agent: a host name of its own below the
// service's domain.
func (b e2bSandbox) envd(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	b.Domain = cmp.Or(b.Domain, strings.TrimPrefix(u.Host, "api."))
	e := url.URL{Scheme: u.Scheme, Host: envdPort + "-" + b.ID + "." + b.Domain, Path: "/process.Process/Start"}
	if _, err := url.Parse(e.String()); err != nil {
		return "", err
	}
	return e.String(), nil
}

// run runs a workload in the sandbox.
func (b e2bSandbox) run(ctx context.Context, rt http.RoundTripper, base string, w workload) error {
	address, err := b.envd(base)
	if err != nil {
		return err
	}
	args := w.args
	if w.code != "" { // its template has its own Python
		args = []string{"python3", "-c", w.code}
	}
	message, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": args[0], "args": args[1:]}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(envelope(message)))
	if err != nil {
		return err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "X-Access-Token": b.Token,
		"E2b-Sandbox-Id": b.ID, "E2b-Sandbox-Port": envdPort, // for services that route by header
		"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("user:")),
	} {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // what matters was read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("process.Process/Start: %s", resp.Status)
	}
	out, err := readProcess(resp.Body)
	if err == nil && strings.TrimSpace(out) != w.want {
		err = fmt.Errorf("it printed \"%s\"", sandbox.SafeText(out, 100))
	}
	return err
}

// envelope puts Connect's five bytes before a message: flags and length.
func envelope(message []byte) []byte {
	b := make([]byte, 5, 5+len(message))
	binary.BigEndian.PutUint32(b[1:], uint32(len(message))) //nolint:gosec // our own request, some hundred bytes
	return append(b, message...)
}

// Connect's flags of a message.
const (
	connectCompressed = 1
	connectEnd        = 2
)

// processEvent is a message of process.Process/Start.
type processEvent struct {
	Event struct {
		Data struct {
			Stdout []byte `json:"stdout"` // base64, as encoding/json has it
			Stderr []byte `json:"stderr"`
		} `json:"data"`
		End *struct {
			ExitCode int    `json:"exitCode"`
			Status   string `json:"status"`
			Error    string `json:"error"`
		} `json:"end"`
	} `json:"event"`
	Error *struct{ Code, Message string } `json:"error"` // in the last message
}

// readProcess reads the events of a process and returns what it printed. A
// process that failed is an error.
func readProcess(r io.Reader) (string, error) {
	var out, errs bounded
	ended := false
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return "", fmt.Errorf("the stream of the process broke: %w", err)
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size > maxAnswer || head[0]&connectCompressed != 0 {
			return "", errors.New("a message that was not asked for")
		}
		message := make([]byte, size)
		if _, err := io.ReadFull(r, message); err != nil {
			return "", err
		}
		var e processEvent
		if err := json.Unmarshal(message, &e); err != nil {
			return "", err
		}
		_, _ = out.Write(e.Event.Data.Stdout)  // never fails
		_, _ = errs.Write(e.Event.Data.Stderr) // never fails
		switch {
		case e.Error != nil:
			return "", fmt.Errorf("%s: %s", sandbox.SafeText(e.Error.Code, 40), sandbox.SafeText(e.Error.Message, 200))
		case e.Event.End != nil && e.Event.End.ExitCode != 0:
			return "", fmt.Errorf("the program ended with %d: %s", e.Event.End.ExitCode, sandbox.SafeText(errs.String(), 200))
		case e.Event.End != nil:
			ended = true
		}
		if head[0]&connectEnd != 0 {
			if !ended {
				return "", errors.New("the stream ended before the process")
			}
			return out.String(), nil
		}
	}
}
