package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"pinfold/sandbox"
)

// ErrContradicted says that a witness has seen another history of a log: it was forked or
// rolled back.
var ErrContradicted = errors.New("the witness has seen another history of this log")

// SizeType is the media type with which a witness answers 409 to say how many entries of
// a log it has seen (C2SP tlog-witness).
const SizeType = "text/x.tlog.size"

// maxAnswer bounds what is read of a witness's answer, in bytes.
const maxAnswer = 64 << 10

// unasked is the size that a witness has where it has not yet asked for a proof.
const unasked = -1

// urlWitness is an address to which checkpoints are posted. One that asks for a proof, as
// another Pinfold and each witness of tlog-witness does, gets it, and from then on at once.
type urlWitness struct {
	url string
	has int64 // how many entries it has seen
}

func (u *urlWitness) String() string {
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(u.url, "https://"), "http://"), "/")
	return host[strings.LastIndexByte(host, '@')+1:]
}

// Keep posts a checkpoint, at most three times: a witness may have seen more or less than
// it had when it was told before.
func (u *urlWitness) Keep(ctx context.Context, head Told) error {
	for range 3 {
		body, err := u.body(head)
		if err != nil {
			return err
		}
		has, err := u.post(ctx, body)
		switch {
		case err != nil:
			return err
		case has == unasked: // taken
			if u.has != unasked {
				u.has = head.Size
			}
			return nil
		case has > head.Size:
			return fmt.Errorf("%w: it has seen %d entries, and there are %d: the log was rolled back, or the witness is wrong", ErrContradicted, has, head.Size)
		}
		u.has = has
	}
	return errors.New("it does not keep to what it has seen")
}

// body is the checkpoint, with a proof where the witness has asked for one.
func (u *urlWitness) body(head Told) (string, error) {
	if u.has == unasked {
		return head.Signed, nil
	}
	var b strings.Builder
	old := min(u.has, head.Size)
	fmt.Fprintf(&b, "old %d\n", old)
	if 0 < old && old < head.Size {
		proof, err := head.Prove(old)
		if err != nil {
			return "", err
		}
		for _, h := range proof {
			b.WriteString(h + "\n")
		}
	}
	return b.String() + "\n" + head.Signed, nil
}

// post returns how many entries the witness has seen where it asks for a proof from there.
func (u *urlWitness) post(ctx context.Context, body string) (has int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "text/plain; charset=utf-8")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	said, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode/100 == 2 {
		return unasked, nil
	}
	refused := fmt.Errorf("it answered %s", answer.Status)
	if answer.StatusCode != http.StatusConflict && answer.StatusCode != http.StatusUnprocessableEntity {
		return 0, refused
	}
	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind == SizeType {
		has, err := strconv.ParseInt(strings.TrimSuffix(string(said), "\n"), 10, 64)
		if err != nil || has < 0 {
			return 0, refused
		}
		return has, nil
	}
	var known sandbox.ErrorBody
	_ = json.Unmarshal(said, &known) // what is none says nothing
	if u.has == unasked && (known.Error == nil || known.Error.Code != sandbox.CodeConflict) {
		return 0, refused // it may be no witness that looks at what it gets
	}
	return 0, fmt.Errorf("%w: %s: %s", ErrContradicted, answer.Status, sandbox.SafeText(string(said), 500))
}
