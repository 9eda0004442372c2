package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// helloOf is what a real client sends first.
func helloOf(t testing.TB, name string, change func(*tls.Config)) []byte {
	ours, theirs := net.Pipe()
	config := &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}
	if change != nil {
		change(config)
	}
	go func() {
		_ = tls.Client(theirs, config).Handshake()
		_ = theirs.Close()
	}()
	_ = ours.SetDeadline(time.Now().Add(10 * time.Second))
	head := make([]byte, 5)
	if _, err := io.ReadFull(ours, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(ours, body); err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	return slices.Concat(head, body)
}

// records cuts a ClientHello into records of so many bytes.
func records(hello []byte, size int) (out []byte) {
	for body := hello[5:]; len(body) > 0; {
		n := min(size, len(body))
		out = append(out, hello[0], hello[1], hello[2], byte(n>>8), byte(n))
		out = append(out, body[:n]...)
		body = body[n:]
	}
	return out
}

func TestHelloName(t *testing.T) {
	hello := helloOf(t, "ok.test", nil)
	for what, data := range map[string][]byte{"whole": hello, "in pieces": records(hello, 7), "TLS 1.2": helloOf(t, "ok.test", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })} {
		if name, err := helloName(data); name != "ok.test" || err != nil {
			t.Errorf("%s: %q %v", what, name, err)
		}
		for i := range data {
			if _, err := helloName(data[:i]); !errors.Is(err, errMore) {
				t.Fatalf("%s: %d of %d bytes: %v", what, i, len(data), err)
			}
		}
		if name, err := helloName(append(bytes.Clone(data), 20, 3, 3, 0, 1, 1)); name != "ok.test" || err != nil {
			t.Errorf("%s, with early data behind it: %q %v", what, name, err)
		}
	}
	if _, err := helloName(helloOf(t, "", nil)); !errors.Is(err, errNoNames) {
		t.Error(err)
	}
}

// Everything that another program could read as another name is refused.
func TestHelloWithTwoReadings(t *testing.T) {
	hello := helloOf(t, "ok.test", nil)
	at := bytes.Index(hello, []byte("ok.test"))
	edit := func(change func([]byte) []byte) []byte { return change(bytes.Clone(hello)) }
	// grow puts bytes in at a place and makes the lengths around it fit.
	grow := func(place int, more []byte, lengths ...int) []byte {
		b := bytes.Clone(hello[:place])
		b = append(append(b, more...), hello[place:]...)
		for _, l := range lengths {
			binary.BigEndian.PutUint16(b[l:], binary.BigEndian.Uint16(b[l:])+uint16(len(more)))
		}
		return b
	}
	const record, message = 3, 7                 // offsets of lengths: two bytes each
	list, ext := at-5, at-7                      // of the list of names, of the extension
	all := extensionsAt(hello)                   // of all extensions
	second := append([]byte{0, 0, 4}, "evil"...) // another name in the list
	for what, data := range map[string][]byte{
		"two names":              grow(at+len("ok.test"), second, list, ext, all, message, record),
		"two extensions":         grow(at+len("ok.test"), append([]byte{0, 0, 0, 9, 0, 7, 0, 0, 4}, "evil"...), all, message, record),
		"another type of name":   edit(func(b []byte) []byte { b[at-3] = 1; return b }),
		"a list that is longer":  edit(func(b []byte) []byte { b[list+1]++; return b }),
		"a name that is shorter": edit(func(b []byte) []byte { b[at-1]--; return b }),
		"no ClientHello":         edit(func(b []byte) []byte { b[5] = 2; return b }),
		"an empty record":        append([]byte{22, 3, 1, 0, 0}, hello...),
		"a version":              edit(func(b []byte) []byte { b[1] = 2; return b }),
		"another record between": append(append(records(hello, 100)[:105], 23, 3, 3, 0, 1, 0), records(hello, 100)[105:]...),
		"bytes behind it in its record": edit(func(b []byte) []byte {
			binary.BigEndian.PutUint16(b[record:], binary.BigEndian.Uint16(b[record:])+1)
			return append(b, 0)
		}),
		"a huge one": append([]byte{22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff}, make([]byte, 100)...),
	} {
		if name, err := helloName(data); !errors.Is(err, errHello) {
			t.Errorf("%s: %q %v", what, name, err)
		}
	}
	ech := grow(at+len("ok.test"), []byte{0xfe, 0x0d, 0, 1, 0}, all, message, record)
	if _, err := helloName(ech); !errors.Is(err, errHidden) {
		t.Errorf("ECH: %v", err)
	}
	if _, err := helloName([]byte("GET / HTTP/1.1\r\n")); !errors.Is(err, errNotTLS) {
		t.Error(err)
	}
	if _, err := helloName(append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xff}, make([]byte, maxHello)...)); errors.Is(err, errMore) {
		t.Error("it asks for more and more")
	}
}

// extensionsAt is where the length of all extensions stands.
func extensionsAt(hello []byte) int {
	i := 5 + 4 + 2 + 32
	i += 1 + int(hello[i])
	i += 2 + int(binary.BigEndian.Uint16(hello[i:]))
	return i + 1 + int(hello[i])
}

func FuzzHelloName(f *testing.F) {
	hello := helloOf(f, "ok.test", nil)
	f.Add(hello)
	f.Add(records(hello, 9))
	f.Add(hello[:20])
	f.Fuzz(func(t *testing.T, data []byte) {
		name, err := helloName(data)
		if err == nil && (name == "" || !bytes.Contains(unrecorded(data), []byte(name))) {
			t.Fatalf("%q", name)
		}
		if errors.Is(err, errMore) && len(data) >= maxHello {
			t.Fatal("it asks for more than there may be")
		}
	})
}

// unrecorded is the data without the records' headers, as far as it goes.
func unrecorded(data []byte) (out []byte) {
	for len(data) >= 5 {
		n := min(len(data)-5, int(binary.BigEndian.Uint16(data[3:])))
		out = append(out, data[5:5+n]...)
		data = data[5+n:]
	}
	return out
}
