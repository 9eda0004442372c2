//go:build linux

package native

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/image"
	"pinfold/test/ledger"
)

// A program that starts finds how late it is, however long its machine has waited;
// the rest follows with the readings, and nothing is written more often than need be.
func TestShown(t *testing.T) {
	agenttest.Bytes(t)
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d := newDriver(t, state)
	m := made(t, d, "shown")
	first := func(path string) float64 {
		t.Helper()
		fd, err := m.meter.openBelow(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), path)
		defer f.Close()
		b := make([]byte, 64)
		n, err := f.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		v, err := strconv.ParseFloat(strings.Fields(strings.TrimPrefix(string(b[:n]), "cpu "))[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if up := first(image.Uptime); up > 100 {
		t.Fatalf("control: a new machine is up for %v s", up)
	}
	m.inside.offset -= 1000 // it has waited
	m.inside.shown = time.Now().Add(time.Hour)
	beginRun(t, m)
	if up := first(image.Uptime); up > 100 {
		t.Errorf("the time was written again after a moment: %v s", up)
	}
	m.inside.shown = time.Time{}
	beginRun(t, m)
	if up := first(image.Uptime); up < 1000 {
		t.Errorf("a program that starts finds %v s", up)
	}
	m.inside.offset, m.inside.shown = m.inside.offset-1000, time.Time{}
	conn, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(nil); err != nil {
		t.Fatal(err)
	}
	if up := first(image.Uptime); up < 2000 {
		t.Errorf("a process that is started finds %v s", up)
	}
	m.inside.shown, m.meter.last.CPUNanos = time.Time{}, int64(time.Hour)
	m.meter.show()
	if used := first(image.Stat); used != 360_000 {
		t.Errorf("an hour of CPU time is %v hundredths of a second", used)
	}
	// Inside, the same files are on read-only mounts: TestConformance. From outside
	// there is no other way to write to them either.
	if err := unix.Access("/proc/"+strconv.Itoa(m.child.PID)+"/root"+image.Stat, unix.W_OK); err == nil {
		t.Error("the sandbox's own mount can be written to")
	}
}
