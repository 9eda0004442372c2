package gate

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
)

// anchor is a text that has to be there for a pattern to match, and what looks at the rest.
// In small letters, at least four bytes.
type anchor struct {
	text string
	// match says where what stands at data[at:], which begins with the anchor in any case of
	// letters, begins and ends. No match: the end is 0. It reads no more than the place
	// deserves: all calls together must be linear in the data.
	match func(data []byte, at int) (from, to int)
	what  string
	with  string // what takes the place of a match
}

// anchors finds many anchors in one pass: of every four bytes a hash says whether one could
// begin there.
type anchors struct {
	maybe [1 << 10]uint64
	heads map[uint32][]anchor
}

const small = 0x20202020 // makes small letters, and of other bytes something that is compared later

func head(b []byte) uint32 { return binary.LittleEndian.Uint32(b) | small }

func hash(h uint32) uint32 { return h * 0x9e3779b1 >> 16 }

func newAnchors(all []anchor) *anchors {
	s := &anchors{heads: map[uint32][]anchor{}}
	for _, a := range all {
		h := head([]byte(a.text))
		s.heads[h] = append(s.heads[h], a)
		s.maybe[hash(h)>>6] |= 1 << (hash(h) & 63)
	}
	return s
}

// patterns are all that are looked for by anchors: keys and sentences, in one pass.
var patterns = sync.OnceValue(func() *anchors { return newAnchors(slices.Concat(keys(), phrases())) })

// anchored looks for patterns in the part. Either check may be nil.
func (s *scan) anchored(keys, phrases *check) {
	if keys == nil && phrases == nil {
		return
	}
	set, data := patterns(), s.part.data
	over := 0 // where the last match ended
	for i := 0; i+4 <= len(data); i++ {
		h := head(data[i : i+4])
		if n := hash(h); set.maybe[n>>6]&(1<<(n&63)) == 0 {
			continue
		}
		for _, a := range set.heads[h] {
			c := keys
			if a.what == whatPhrase {
				c = phrases
			}
			if c == nil || !hasFold(data[i:], a.text) {
				continue
			}
			from, to := a.match(data, i)
			if to <= from || from < over {
				continue
			}
			s.hit(c, from, to, a.what, a.with)
			over, i = to, to-1
			break
		}
	}
}

// hasFold says whether data begins with text, which is in small letters.
func hasFold(data []byte, text string) bool {
	return len(data) >= len(text) && strings.EqualFold(string(data[:len(text)]), text)
}
