package nbd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

type disk struct{ *strings.Reader }

// ReadAt fails at one place.
func (d disk) ReadAt(p []byte, at int64) (int, error) {
	if at == 13 {
		return 0, errors.New("a bad block")
	}
	return d.Reader.ReadAt(p, at)
}

// client speaks with a server of its own.
type client struct {
	*testing.T
	net.Conn
	ended chan error
}

func dial(t *testing.T) *client {
	ours, theirs := net.Pipe()
	c := &client{t, ours, make(chan error, 1)}
	_ = ours.SetDeadline(time.Now().Add(10 * time.Second))
	go func() {
		c.ended <- Serve(theirs, disk{strings.NewReader(strings.Repeat("0123456789abcdef", 1000))})
		_ = theirs.Close()
	}()
	t.Cleanup(func() { _ = ours.Close() })
	if hello := c.take(18); string(hello[:16]) != "NBDMAGICIHAVEOPT" {
		t.Fatalf("%q", hello)
	}
	return c
}

func (c *client) take(n int) []byte {
	c.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		c.Fatal(err)
	}
	return b
}

func (c *client) say(parts ...any) {
	c.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		if err := binary.Write(&b, binary.BigEndian, p); err != nil {
			c.Fatal(err)
		}
	}
	_, _ = c.Write(b.Bytes()) // the server may have closed
}

func (c *client) option(number uint32, data string) {
	c.say([]byte("IHAVEOPT"), number, uint32(len(data)), []byte(data))
}

// agreed has got as far as the requests.
func agreed(t *testing.T) *client {
	c := dial(t)
	c.say(uint32(3))
	c.option(8, "")
	if r := c.take(20); binary.BigEndian.Uint32(r[12:]) != replyUnsupported {
		t.Fatalf("structured replies: %x", r)
	}
	c.option(optionGo, "\x00\x00\x00\x01x\x00\x00")
	if r := c.take(32); binary.BigEndian.Uint32(r[12:]) != replyInfo || binary.BigEndian.Uint64(r[22:]) != 16000 || r[31] != flagsDisk {
		t.Fatalf("the disk: %x", r)
	}
	if r := c.take(20); binary.BigEndian.Uint32(r[12:]) != replyAck {
		t.Fatalf("%x", r)
	}
	return c
}

func (c *client) request(command uint16, at uint64, length uint32) {
	c.say(uint32(magicRequest), uint16(0), command, at+7, at, length)
}

// reply wants the reply to a request about that place.
func (c *client) reply(at uint64, failure uint32, length int) string {
	c.Helper()
	head := c.take(16)
	if be := binary.BigEndian; be.Uint32(head) != magicSimple || be.Uint32(head[4:]) != failure || be.Uint64(head[8:]) != at+7 {
		c.Errorf("at %d: %x", at, head)
	}
	return string(c.take(length))
}

func TestServe(t *testing.T) {
	c := agreed(t)
	for _, r := range [][2]int{{0, 16}, {15990, 10}, {5, 0}, {0, 16000}} {
		c.request(commandRead, uint64(r[0]), uint32(r[1]))
		if got, want := c.reply(uint64(r[0]), 0, r[1]), strings.Repeat("0123456789abcdef", 1000)[r[0]:r[0]+r[1]]; got != want {
			t.Errorf("%v: %.100q", r, got)
		}
	}
	for _, r := range []struct {
		command uint16
		at      uint64
		length  uint32
		failure uint32
	}{
		{commandRead, 15999, 2, errInval},
		{commandRead, 1 << 63, 1, errInval},
		{commandRead, 0, 1 << 31, errInval},
		{commandRead, 13, 1, errIO},
		{77, 0, 1, errInval},
		{commandEnd, 0, 0, 0},
	} {
		c.request(r.command, r.at, r.length)
		c.reply(r.at, r.failure, 0)
	}
	c.request(commandDisc, 0, 0)
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
}

// Clients from before the fixed handshake are served, too.
func TestServeOldClient(t *testing.T) {
	c := dial(t)
	c.say(uint32(0))
	c.option(optionExport, "any")
	if r := c.take(134); binary.BigEndian.Uint64(r) != 16000 {
		t.Errorf("%x", r)
	}
	c.request(commandRead, 1, 2)
	if got := c.reply(1, 0, 2); got != "12" {
		t.Errorf("%q", got)
	}
	_ = c.Close()
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
}

// Who does not speak the protocol is sent away at once.
func TestServeGarbage(t *testing.T) {
	for what, c := range map[string]struct {
		with func(t *testing.T) *client
		say  func(*client)
	}{
		"no option":     {dial, func(c *client) { c.say(uint32(1), []byte(strings.Repeat("x", 16))) }},
		"a huge option": {dial, func(c *client) { c.say(uint32(1), []byte("IHAVEOPT"), uint32(7), uint32(1<<31)) }},
		"no request":    {agreed, func(c *client) { c.say([]byte(strings.Repeat("x", 28))) }},
		"a write":       {agreed, func(c *client) { c.request(commandWrite, 0, 1<<31) }},
		"options for ever": {dial, func(c *client) {
			c.say(uint32(1))
			go func() { _, _ = io.Copy(io.Discard, c) }()
			for range maxOptions + 1 {
				c.option(99, "")
			}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			client := c.with(t)
			c.say(client)
			select {
			case err := <-client.ended:
				if err == nil {
					t.Error("that is fine with the server")
				}
			case <-time.After(10 * time.Second):
				t.Error("the server waits for more")
			}
		})
	}
	c := dial(t)
	c.say(uint32(1))
	c.option(optionGo, "\xff\xff\xff\xff\x00\x00")
	if r := c.take(20); binary.BigEndian.Uint32(r[12:]) != replyInvalid {
		t.Errorf("a name that is longer than the option: %x", r)
	}
	c.option(optionAbort, "")
	c.take(20)
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
}
