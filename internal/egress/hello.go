package egress

import (
	"encoding/binary"
	"errors"
)

// What the first bytes of a connection can be.
var (
	errMore    = errors.New("there is more to come")
	errNotTLS  = errors.New("it does not begin with TLS")
	errHello   = errors.New("it begins with no ClientHello that can be read in one way")
	errHidden  = errors.New("the name is encrypted (ECH)")
	errNoNames = errors.New("it asks for no name")
)

const (
	recordHandshake = 22
	clientHello     = 1
	extServerName   = 0
	extECH          = 0xfe0d
	hostName        = 0

	// maxHello bounds a ClientHello with its records' headers. With post-quantum keys
	// one has about 2 KB.
	maxHello  = 16 << 10
	maxRecord = 16 << 10
)

// helloName reads the name that a TLS client asks for. data is what has come so far;
// errMore says that it takes more, and there never is more than maxHello.
//
// Every length must fit, nothing may be left over and no extension may be there twice: a
// server must not be able to read another name than we.
func helloName(data []byte) (name string, err error) {
	body, err := helloBody(data)
	if err != nil {
		return "", err
	}
	r := reader(body)
	r.skip(2 + 32)    // version, random
	r.skip(r.uint8()) // session
	suites := r.uint16()
	r.skip(suites)
	compressions := r.uint8()
	r.skip(compressions)
	extensions := r.take(r.uint16())
	if r == nil || len(r) > 0 || suites == 0 || suites%2 != 0 || compressions == 0 || extensions == nil {
		return "", errHello
	}
	return namesIn(extensions)
}

// helloBody puts the message together that may lie in several records.
func helloBody(data []byte) ([]byte, error) {
	var message []byte
	for more := data; ; {
		if len(more) > 0 && more[0] != recordHandshake {
			if len(message) == 0 {
				return nil, errNotTLS
			}
			return nil, errHello
		}
		if len(more) < 5 {
			return nil, wantMore(data)
		}
		length := int(binary.BigEndian.Uint16(more[3:]))
		if more[1] != 3 || length == 0 || length > maxRecord {
			return nil, errHello
		}
		part := more[5:min(len(more), 5+length)]
		message = append(message, part...)
		if len(message) > 0 && message[0] != clientHello {
			return nil, errHello
		}
		if len(message) >= 4 {
			whole := 4 + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
			switch {
			case whole > maxHello || len(message) > whole: // one message, and nothing after it in its record
				return nil, errHello
			case len(message) == whole && len(part) == length:
				return message[4:], nil // what follows is opaque: early data
			}
		}
		if len(part) < length {
			return nil, wantMore(data)
		}
		more = more[5+length:]
	}
}

func wantMore(data []byte) error {
	if len(data) >= maxHello {
		return errHello
	}
	return errMore
}

// namesIn finds the one name in a ClientHello's extensions.
func namesIn(extensions []byte) (name string, err error) {
	r := reader(extensions)
	seen := map[int]bool{}
	for len(r) > 0 {
		kind := r.uint16()
		content := r.take(r.uint16())
		if r == nil || seen[kind] {
			return "", errHello
		}
		seen[kind] = true
		switch kind {
		case extECH:
			err = errHidden
		case extServerName:
			if name = nameIn(content); name == "" {
				return "", errHello
			}
		}
	}
	switch {
	case err != nil:
		return "", err
	case !seen[extServerName]:
		return "", errNoNames
	}
	return name, nil
}

// nameIn reads a list with one name in it.
func nameIn(list []byte) string {
	r := reader(list)
	if r.uint16() != len(r) || r.uint8() != hostName {
		return ""
	}
	name := r.take(r.uint16())
	if r == nil || len(r) > 0 {
		return ""
	}
	return string(name)
}

// reader takes bytes from its front. It is nil once there were too few.
type reader []byte

func (r *reader) take(n int) []byte {
	if *r == nil || n > len(*r) {
		*r = nil
		return nil
	}
	b := (*r)[:n]
	*r = (*r)[n:]
	return b
}

func (r *reader) skip(n int) { r.take(n) }

func (r *reader) uint8() int {
	if b := r.take(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (r *reader) uint16() int {
	if b := r.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}
