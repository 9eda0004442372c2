// Package nbd serves a read-only disk to one client, in the protocol of network block
// devices, so that a virtual machine's disk need not be a file. The client is hostile:
// whatever it says costs the server one bounded buffer, and an end of the connection.
//
// The protocol is that of https://github.com/NetworkBlockDevice/nbd, doc/proto.md: the
// fixed newstyle handshake, and simple replies.
package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Numbers of the protocol.
const (
	magicServer  = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption  = 0x49484156454F5054 // "IHAVEOPT"
	magicReply   = 0x3e889045565a9
	magicRequest = 0x25609513
	magicSimple  = 0x67446698

	flagFixed, flagNoZeroes = 1, 2
	flagsDisk               = 1 | 2 // has flags, read-only

	optionExport, optionAbort, optionInfo, optionGo    = 1, 2, 6, 7
	replyAck, replyInfo                                = 1, 3
	replyUnsupported, replyInvalid                     = 1<<31 + 1, 1<<31 + 3
	infoExport                                         = 0
	commandRead, commandWrite, commandDisc, commandEnd = 0, 1, 2, 3

	errIO, errInval = 5, 22
)

// Bounds of what a client may ask for.
const (
	maxRead    = 2 << 20
	maxOption  = 4 << 10
	maxOptions = 64
)

// Disk is what is served.
type Disk interface {
	io.ReaderAt
	Size() int64
}

// server serves one client.
type server struct {
	conn io.ReadWriter
	disk Disk
	buf  []byte
}

// errDone means that the client has said good-bye.
var errDone = errors.New("the client is done")

// Serve serves the disk until the client has said good-bye or closed the connection, which
// is no error. The caller closes the connection.
func Serve(conn io.ReadWriter, disk Disk) error {
	s := &server{conn: conn, disk: disk}
	err := s.greet()
	for err == nil {
		err = s.request()
	}
	if errors.Is(err, errDone) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// read reads so many bytes, which are valid until the next call.
func (s *server) read(n int) ([]byte, error) {
	b := s.space(n)
	_, err := io.ReadFull(s.conn, b)
	return b, err
}

// space is a buffer of that size.
func (s *server) space(n int) []byte {
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	return s.buf[:n]
}

func (s *server) write(b []byte) error {
	_, err := s.conn.Write(b)
	return err
}

// greet agrees on the disk.
func (s *server) greet() error {
	be := binary.BigEndian
	hello := be.AppendUint64(nil, magicServer)
	hello = be.AppendUint64(hello, magicOption)
	if err := s.write(be.AppendUint16(hello, flagFixed|flagNoZeroes)); err != nil {
		return err
	}
	flags, err := s.read(4)
	if err != nil {
		return err
	}
	noZeroes := be.Uint32(flags)&flagNoZeroes != 0
	for range maxOptions {
		head, err := s.read(16)
		if err != nil {
			return err
		}
		option, length := be.Uint32(head[8:]), be.Uint32(head[12:])
		if be.Uint64(head) != magicOption || length > maxOption {
			return fmt.Errorf("nbd: the client's option %d of %d bytes is none", option, length)
		}
		data, err := s.read(int(length))
		if err != nil {
			return err
		}
		if over, err := s.option(option, data, noZeroes); over || err != nil {
			return err
		}
	}
	return fmt.Errorf("nbd: the client has sent %d options", maxOptions)
}

// option answers one; over says that the requests come next.
func (s *server) option(option uint32, data []byte, noZeroes bool) (over bool, err error) {
	be := binary.BigEndian
	switch option {
	case optionExport: // the only one without a reply of the usual form
		b := be.AppendUint16(be.AppendUint64(nil, uint64(s.disk.Size())), flagsDisk) //nolint:gosec // not negative
		if !noZeroes {
			b = append(b, make([]byte, 124)...)
		}
		return true, s.write(b)
	case optionAbort:
		return true, errors.Join(s.reply(option, replyAck, nil), errDone)
	case optionInfo, optionGo:
		if len(data) < 6 || int(be.Uint32(data)) > len(data)-6 {
			return false, s.reply(option, replyInvalid, nil)
		}
		info := be.AppendUint64(be.AppendUint16(nil, infoExport), uint64(s.disk.Size())) //nolint:gosec // as above
		err := s.reply(option, replyInfo, be.AppendUint16(info, flagsDisk))
		if err == nil {
			err = s.reply(option, replyAck, nil)
		}
		return option == optionGo, err
	}
	return false, s.reply(option, replyUnsupported, nil)
}

func (s *server) reply(option, kind uint32, data []byte) error {
	be := binary.BigEndian
	b := be.AppendUint32(be.AppendUint32(be.AppendUint64(nil, magicReply), option), kind)
	return s.write(append(be.AppendUint32(b, uint32(len(data))), data...)) //nolint:gosec // our own
}

// headSize is the size of a simple reply without data.
const headSize = 16

// request answers one request.
func (s *server) request() error {
	be := binary.BigEndian
	head, err := s.read(28)
	if err != nil {
		return err
	}
	command, handle := be.Uint16(head[6:]), be.Uint64(head[8:])
	offset, length := be.Uint64(head[16:]), be.Uint32(head[24:])
	if be.Uint32(head) != magicRequest {
		return errors.New("nbd: the client's request is none")
	}
	switch {
	case command == commandDisc:
		return errDone
	case command == commandEnd:
		return s.answer(handle, 0, 0)
	case command == commandWrite: // what it would write comes after this
		return errors.New("nbd: the client writes to a disk that it may only read")
	case command != commandRead || length > maxRead || offset > uint64(s.disk.Size()) || uint64(length) > uint64(s.disk.Size())-offset: //nolint:gosec // not negative
		return s.answer(handle, errInval, 0)
	}
	b := s.space(headSize + int(length))
	if _, err := s.disk.ReadAt(b[headSize:], int64(offset)); err != nil { //nolint:gosec // at most the size
		return s.answer(handle, errIO, 0)
	}
	return s.answer(handle, 0, int(length))
}

// answer sends a reply, with so many bytes behind its head in the buffer.
func (s *server) answer(handle uint64, failure uint32, length int) error {
	b, be := s.space(headSize+length), binary.BigEndian
	be.PutUint32(b, magicSimple)
	be.PutUint32(b[4:], failure)
	be.PutUint64(b[8:], handle)
	return s.write(b)
}
