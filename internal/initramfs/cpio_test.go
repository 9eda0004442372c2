package initramfs

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// The kernel's own reader is exercised by every boot; this is the format byte
// by byte.
func TestCPIO(t *testing.T) {
	var got bytes.Buffer
	c := NewArchive(&got)
	for _, e := range []Entry{
		{Name: "d", Mode: TypeDir | 0o755},
		{Name: "d/f", Mode: TypeFile | 0o644, UID: 1000, GID: 100, Size: 5, Content: strings.NewReader("hello")},
	} {
		if err := c.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	zeros := func(n int) string { return strings.Repeat("00000000", n) }
	want := "070701" + "00000001" + "000041ed" + zeros(2) + "00000001" + zeros(6) + "00000002" + zeros(1) + "d\x00" +
		"070701" + "00000002" + "000081a4" + "000003e8" + "00000064" + "00000001" + zeros(1) + "00000005" + zeros(4) + "00000004" + zeros(1) + "d/f\x00\x00\x00" +
		"hello\x00\x00\x00" +
		"070701" + "00000002" + zeros(3) + "00000001" + zeros(6) + "0000000b" + zeros(1) + "TRAILER!!!\x00\x00\x00\x00"
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
}

func TestCPIORefuses(t *testing.T) {
	for _, e := range []Entry{
		{Name: ""},
		{Name: "/etc/passwd"},
		{Name: "../x"},
		{Name: "big", Size: 1 << 32},
		{Name: "short", Size: 6, Content: strings.NewReader("hello")},
		{Name: "broken", Size: 6, Content: iotest.ErrReader(io.ErrUnexpectedEOF)},
	} {
		if err := NewArchive(io.Discard).Add(e); err == nil {
			t.Errorf("took %q", e.Name)
		}
	}
}
