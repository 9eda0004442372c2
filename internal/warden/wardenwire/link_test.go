package wardenwire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// machine is the other end of a link.
type machine struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

func pair(t *testing.T) (*Link, *machine) {
	ours, theirs := net.Pipe()
	_ = theirs.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { _ = theirs.Close() })
	return NewLink(ours), &machine{t, theirs, bufio.NewReader(theirs)}
}

func (m *machine) say(text string) { _, _ = m.Write([]byte(text + "\n")) } // the host may have hung up

func (m *machine) heard() (r Request) {
	line, err := m.in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		m.Error(err)
	}
	return r
}

func TestLink(t *testing.T) {
	l, m := pair(t)
	go m.say(`{"hello":{"version":2,"build":"b"}}`)
	if h, err := l.Hello(t.Context()); err != nil || h.Build != "b" {
		t.Errorf("%+v, %v", h, err)
	}
	for answer, check := range map[string]func(Reply, error) bool{
		`"usage":{"CPUNanos":7}`:               func(r Reply, err error) bool { return err == nil && r.Usage.CPUNanos == 7 },
		`"ended":true,"error":{"code":"gone"}`: func(_ Reply, err error) bool { return errors.Is(err, driver.ErrEnded) },
		`"error":{"code":"x","message":"` + strings.Repeat("m", 9000) + `"}`: func(_ Reply, err error) bool {
			e := new(sandbox.Error)
			return errors.As(err, &e) && e.Code == "x" && len(e.Message) < 3000
		},
	} {
		go func() {
			r := m.heard()
			m.say(`{"id":999,"usage":{"CPUNanos":8}}`) // nobody's
			text, _ := json.Marshal(r.ID)
			m.say(`{"id":` + string(text) + `,` + answer + `}`)
		}()
		if r, err := l.Ask(t.Context(), Request{Op: OpUsage}); !check(r, err) {
			t.Errorf("%.60s: %+v, %v", answer, r, err)
		}
	}
	go func() {
		m.say(`{"death":{"Kind":"memory"}}`)
		m.say(`{"death":{"Kind":"agent"}}`) // the first counts
		_ = m.Close()
	}()
	if d := <-l.Death(); d.Kind != driver.DeathMemory {
		t.Errorf("%+v", d)
	}
	<-l.Over()
	if _, err := l.Ask(t.Context(), Request{Op: OpUsage}); !errors.Is(err, ErrOver) {
		t.Errorf("asked when it is over: %v", err)
	}
}

// What is no message ends the link, at once and with the reason, also for who waits.
func TestLinkGarbage(t *testing.T) {
	for what, c := range map[string]struct{ said, why string }{
		"no message":       {"garbage\x00\n", "no message"},
		"an endless line":  {strings.Repeat("x", MaxLine+1), "in a line"},
		"another type":     {`{"id":"seven"}` + "\n", "no message"},
		"an end in a line": {`{"id":`, ErrOver.Error()},
	} {
		l, m := pair(t)
		asked := make(chan error, 1)
		go func() {
			_, err := l.Ask(context.Background(), Request{Op: OpUsage})
			asked <- err
		}()
		m.heard()
		_, _ = m.Write([]byte(c.said))
		_ = m.Close()
		select {
		case err := <-asked:
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: somebody waits for ever", what)
		}
		if _, err := l.Hello(t.Context()); err == nil {
			t.Errorf("%s: hello all the same", what)
		}
	}
	l, _ := pair(t)
	if _, err := l.Ask(t.Context(), Request{Op: strings.Repeat("x", MaxRequest)}); err == nil {
		t.Error("a request that the machine would refuse is sent")
	}
}
