package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"pinfold/sandbox"
)

// http passes requests on, each held against the endpoint, until the guest has no more.
// What comes back goes its own way (answers), and is not read.
func (c *connection) http(guest io.Reader) error {
	in := bufio.NewReaderSize(guest, maxHead)
	if p, err := peek(in); p != speaksHTTP {
		if p == undecided {
			return err
		}
		return c.refuse(true, sandbox.DeniedNotHTTP, errNotHTTP)
	}
	for first := true; ; first = false {
		head, err := readHead(in)
		if err != nil {
			if errors.Is(err, io.EOF) && len(head) == 0 {
				return c.endOfGuest()
			}
			if !errors.Is(err, errRequest) {
				return err
			}
			return c.refuse(first, sandbox.DeniedMalformed, err)
		}
		r, err := parseHead(head)
		if err != nil {
			return c.refuse(first, sandbox.DeniedMalformed, err)
		}
		if reason, err := c.holds(r); err != nil {
			return c.refuse(first, reason, err)
		}
		if err := c.open(); err != nil {
			return c.refuseDial(first, err)
		}
		if r.h2c {
			head = withoutOffer(head)
		}
		if err := c.up(head); err != nil {
			return err
		}
		switch {
		case r.upgrade: // what follows is another protocol
			c.passed++
			return c.copyUp(in)
		case r.chunked:
			err = c.chunks(in)
		default:
			err = c.exactly(in, r.length)
		}
		if err != nil {
			return err
		}
		c.passed++
		if c.single {
			return c.noMore(in)
		}
	}
}

// noMore waits for the end of a guest that has said all that it may.
func (c *connection) noMore(in io.Reader) error {
	switch n, err := io.Copy(io.Discard, io.LimitReader(in, maxHead)); {
	case err != nil:
		return err
	case n == maxHead:
		return c.refuse(false, sandbox.DeniedMalformed, malformed("a connection has one request to a proxy, and this goes on"))
	}
	return c.endOfGuest()
}

var errNotHTTP = errors.New("it does not begin with HTTP/1")

// peek looks what a guest speaks. Where the guest ends before that can be told, that is
// the error.
func peek(in *bufio.Reader) (protocol, error) {
	for {
		_, err := in.Peek(in.Buffered() + 1)
		data, _ := in.Peek(in.Buffered())
		if p := recognize(data); p != undecided {
			return p, nil
		}
		if err != nil {
			return undecided, err
		}
	}
}

// holds holds a request against the endpoint.
func (c *connection) holds(r request) (sandbox.DenialReason, error) {
	switch {
	case r.port != 0 && r.port != c.door.Port:
		return sandbox.DeniedHost, fmt.Errorf("the request is for %q", sandbox.SafeText(r.host+":"+strconv.Itoa(r.port), 80))
	case r.upgrade && c.ruled():
		if !r.websocket {
			return sandbox.DeniedMalformed, errUpgrade
		}
	case r.upgrade && c.endpoint.Address == "":
		// A server that does not know the protocol goes on with HTTP, and what follows
		// could be a request for another host.
		return sandbox.DeniedMalformed, errors.New("it asks for another protocol (Upgrade)")
	}
	return c.holdsHost(r.host, sandbox.DeniedHost, fmt.Sprintf("the request is for %q", sandbox.SafeText(r.host, 80)))
}

// readHead reads up to the empty line. Nothing is returned with io.EOF where nothing came.
func readHead(in *bufio.Reader) (head []byte, err error) {
	for {
		line, err := in.ReadSlice('\n')
		head = append(head, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull), len(head) > maxHead:
			return head, malformed("its head is longer than %d bytes", maxHead)
		case errors.Is(err, io.EOF) && len(head) > 0:
			return head, malformed("it ends within its head")
		case err != nil:
			return head, err
		case !bytes.HasSuffix(line, []byte("\r\n")):
			return head, malformed("a line ends without CR")
		case len(line) == 2 && len(head) == 2:
			return head, malformed("it begins with an empty line")
		case len(line) == 2:
			return head, nil
		}
	}
}

// chunks passes a chunked body on.
func (c *connection) chunks(in *bufio.Reader) error {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		digits, ok := strings.CutSuffix(string(line), "\r\n")
		size, err := strconv.ParseUint(digits, 16, 62)
		if !ok || err != nil || digits[0] == '+' || len(digits) > 16 {
			return c.refuse(false, sandbox.DeniedMalformed, malformed("a chunk has no size alone in its line"))
		}
		if err := c.up([]byte(digits + "\r\n")); err != nil {
			return err
		}
		if err := c.exactly(in, int64(size)); err != nil { //nolint:gosec // 62 bits
			return err
		}
		var end [2]byte
		if _, err := io.ReadFull(in, end[:]); err != nil {
			return err
		}
		if end != [2]byte{'\r', '\n'} {
			return c.refuse(false, sandbox.DeniedMalformed, malformed("a chunk is longer than its size, or has trailers behind it"))
		}
		if err := c.up(end[:]); err != nil || size == 0 {
			return err
		}
	}
}

// exactly passes so many bytes on.
func (c *connection) exactly(in io.Reader, n int64) error {
	buffer := takeBuffer()
	defer giveBuffer(buffer)
	for n > 0 {
		got, err := in.Read((*buffer)[:min(n, int64(len(*buffer)))])
		if upErr := c.up((*buffer)[:got]); upErr != nil {
			return upErr
		}
		if n -= int64(got); err != nil && n > 0 {
			return err
		}
	}
	return nil
}

// answer is what a program is told in HTTP, where nothing was passed on before.
func answer(status, text string) []byte {
	text = "pinfold: " + text + "\n"
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(text), text)
}
