package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func packet(t testing.TB, name string, kind dnsmessage.Type) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnswers(t *testing.T) {
	at := netip.MustParseAddr("127.66.0.2")
	for _, c := range []struct {
		name     string
		kind     dnsmessage.Type
		declared bool
		code     dnsmessage.RCode
		answers  int
	}{
		{"OK.test.", dnsmessage.TypeA, true, dnsmessage.RCodeSuccess, 1},
		{"ok.test.", dnsmessage.TypeAAAA, true, dnsmessage.RCodeSuccess, 0},
		{"ok.test.", dnsmessage.TypeTXT, true, dnsmessage.RCodeSuccess, 0},
		{"secret.evil.test.", dnsmessage.TypeA, false, dnsmessage.RCodeNameError, 0},
	} {
		q, err := parseQuery(packet(t, c.name, c.kind))
		if err != nil || q.name != strings.ToLower(strings.TrimSuffix(c.name, ".")) {
			t.Fatalf("%+v %v", q, err)
		}
		var m dnsmessage.Message
		if err := m.Unpack(q.answer(at, c.declared)); err != nil {
			t.Fatal(err)
		}
		if m.ID != 7 || !m.Response || m.RCode != c.code || len(m.Answers) != c.answers || len(m.Questions) != 1 || m.Questions[0].Name.String() != c.name {
			t.Errorf("%s: %+v", c.name, m)
		}
		if c.answers == 1 && (m.Answers[0].Body.(*dnsmessage.AResource).A != at.As4() || m.Answers[0].Header.Name.String() != c.name) {
			t.Errorf("%+v", m.Answers[0])
		}
	}
}

func TestWrongQueries(t *testing.T) {
	good := packet(t, "ok.test.", dnsmessage.TypeA)
	for i := range good {
		if _, err := parseQuery(good[:i]); !errors.Is(err, errQuery) {
			t.Errorf("%d of %d bytes are a query", i, len(good))
		}
	}
	for what, change := range map[string]func([]byte){
		"an answer": func(b []byte) { b[2] |= 0x80 }, "an update": func(b []byte) { b[2] |= 5 << 3 },
		"two questions": func(b []byte) { b[5] = 2 }, "a pointer": func(b []byte) { b[12] = 0xc0 }, "another class": func(b []byte) { b[len(b)-1] = 3 },
	} {
		b := append([]byte(nil), good...)
		change(b)
		if _, err := parseQuery(b); !errors.Is(err, errQuery) {
			t.Errorf("%s is a query", what)
		}
	}
	for _, raw := range []string{"\x05a.b.c\x00", "\x03a\x00b\x00", "\x04a@bc\x00", "\x00"} {
		q, err := parseQuery(append(append(append([]byte(nil), good[:12]...), raw...), 0, 1, 0, 1))
		if err != nil || q.name != "" {
			t.Errorf("%q is %q: %v", raw, q.name, err)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add(packet(f, "ok.test.", dnsmessage.TypeA))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseQuery(b[:min(len(b), maxQuery)])
		if err != nil {
			return
		}
		if a := q.answer(netip.MustParseAddr("127.66.0.2"), q.name != ""); len(a) > maxQuery+16 {
			t.Fatalf("an answer of %d bytes to a query of %d", len(a), len(b))
		}
	})
}
