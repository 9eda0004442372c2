package egress

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"pinfold/sandbox"
)

// lookUps answers the look-ups of programs inside, over UDP: declared names, and those
// below wildcards, have the address of their doors, and no other name exists. Nothing is asked of anybody: a name is no way
// out. What was asked for in vain is written down.
func (r *Relay) lookUps(at map[string]netip.Addr) {
	buffer := make([]byte, maxQuery)
	for {
		n, from, err := r.names.ReadFrom(buffer)
		if err != nil {
			if r.life.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(acceptPause)
			continue
		}
		q, err := parseQuery(buffer[:n])
		if err != nil {
			continue // whoever asks so waits in vain
		}
		host := standsFor(q.name, r.made)
		address, declared := at[host]
		switch {
		case q.name == "" || strings.HasSuffix(q.name, ".arpa"): // those are addresses, backwards
		case !declared:
			r.ledger.deny(q.name, 0, sandbox.DeniedUndeclared, "")
		case !r.now.Load().has(host):
			declared = false
			r.ledger.deny(q.name, 0, sandbox.DeniedNarrowed, "")
		}
		_ = r.names.WriteTo(q.answer(address, declared), from)
	}
}

// Numbers of DNS (RFC 1035).
const (
	maxQuery   = 512
	headerSize = 12
	typeA      = 1
	classIN    = 1
	flagQuery  = 0x8000
	opcodes    = 0x7800
	recursion  = 0x0100
	nameError  = 3
	answerTTL  = 60
)

var errQuery = errors.New("it is no query")

// query is one question.
type query struct {
	header   []byte
	question []byte // as it came
	name     string // canonical; "": no host's name
	kind     uint16
}

// parseQuery reads a query with one question; what follows that (EDNS) is passed over.
func parseQuery(packet []byte) (q query, err error) {
	if len(packet) < headerSize {
		return q, errQuery
	}
	flags := binary.BigEndian.Uint16(packet[2:])
	if flags&flagQuery != 0 || flags&opcodes != 0 || binary.BigEndian.Uint16(packet[4:]) != 1 {
		return q, errQuery
	}
	rest := packet[headerSize:]
	var labels []string
	length := 0
	for {
		if len(rest) == 0 || rest[0] > 63 || len(rest) < int(rest[0])+1 { // no pointers in a question
			return q, errQuery
		}
		n := int(rest[0])
		label := string(rest[1 : n+1])
		rest = rest[n+1:]
		if n == 0 {
			break
		}
		labels = append(labels, label)
		if length += n + 1; length > 254 {
			return q, errQuery
		}
	}
	if len(rest) < 4 || binary.BigEndian.Uint16(rest[2:]) != classIN {
		return q, errQuery
	}
	q.kind = binary.BigEndian.Uint16(rest)
	q.header = packet[:headerSize]
	q.question = packet[headerSize : len(packet)-len(rest)+4]
	name := strings.Join(labels, ".")
	if host, err := sandbox.CanonicalHost(name); err == nil && strings.Count(name, ".") < len(labels) { // a dot in a label would make two
		q.name = host
	}
	return q, nil
}

// answer is the packet that answers it.
func (q query) answer(address netip.Addr, declared bool) []byte {
	out := append([]byte(nil), q.header...)
	asked := binary.BigEndian.Uint16(out[2:])
	flags := uint16(flagQuery|1<<10|1<<7) | asked&recursion // authoritative, recursion available
	if !declared {
		flags |= nameError
	}
	binary.BigEndian.PutUint16(out[2:], flags)
	has := declared && q.kind == typeA && address.Is4()
	for i, count := range []uint16{1, 0, 0, 0} {
		if i == 1 && has {
			count = 1
		}
		binary.BigEndian.PutUint16(out[4+2*i:], count)
	}
	out = append(out, q.question...)
	if has {
		out = append(out, 0xc0, headerSize, 0, typeA, 0, classIN, 0, 0, 0, answerTTL, 0, 4) // the question's name
		out = append(out, address.AsSlice()...)
	}
	return out
}
