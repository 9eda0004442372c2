package wire

// The messages of doors: addresses of the sandbox's own loopback at which the agent takes
// what programs connect to and hands it to the host. Which door a connection came through
// the host knows from what it asked for itself; the agent names none.

// DoorsRequest opens doors: at each address of At, of which there are at most MaxDoors, the
// agent listens for connections, and at Resolver for packets. It is asked for once, before
// anything runs in the sandbox. Closing it closes all doors; connections go on.
type DoorsRequest struct {
	At       []Address
	Resolver Address
}

// Address is an IPv4 address of the sandbox's loopback, and a port.
type Address struct {
	IP   []byte // 4 bytes
	Port int
}

// AcceptRequest waits for the next connection at the door of that index. The channel lives
// until both directions have ended, as that of a dial.
type AcceptRequest struct {
	Door int
}

// Packet is one packet that came to the resolver, or an answer. Peer is the program's end.
// See AppendPacket for how they travel.
type Packet struct {
	Peer    Address
	Content []byte
}

// MaxPacketContent is the most bytes in a packet, MaxPacket the most of one as a message.
// Longer ones are dropped.
const (
	MaxPacketContent = 512
	MaxPacket        = MaxPacketContent + 32
)

// AppendPacket appends a packet to b as it travels on streams 0 and 1 of doors: its length
// in two bytes, and then the message.
func AppendPacket(b []byte, p *Packet) []byte { return appendRecord(b, p) }

// CutPacket returns the first packet's message and what follows it; whole is false while
// bytes of it are still to come. A length that cannot be is a *Violation.
func CutPacket(b []byte) (message, rest []byte, whole bool, err error) {
	return cutRecord(b, MaxPacket, "a packet that is too long")
}

// Valid says whether the address can be one of a sandbox's loopback.
func (a Address) Valid() bool {
	return len(a.IP) == 4 && a.IP[0] == 127 && a.Port >= 1 && a.Port <= 65535
}
