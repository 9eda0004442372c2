package gvisor

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A sentry that was taken over may answer anything, or nothing.
func TestGuestTasks(t *testing.T) {
	for what, c := range map[string]struct {
		answer string
		want   int64 // -1: an error
	}{
		"two of the guest's":    {`{"success":true,"err":"","result":[{"pid":1,"threads":[1,2]},{"pid":7,"threads":[7]},{"pid":9,"threads":[9]}]}`, 2},
		"three threads":         {`{"success":true,"result":[{"pid":1,"threads":[1]},{"pid":7,"threads":[7,8,9]}]}`, 3},
		"none":                  {`{"success":true,"result":null}`, 0},
		"an error":              {`{"success":false,"err":"no such container","result":null}`, -1},
		"another type":          {`{"success":true,"result":{"pid":1}}`, -1},
		"no JSON":               {"HTTP/1.1 200 OK\r\n\r\n", -1},
		"half of it":            {`{"success":true,"result":[{"pid":7,`, -1},
		"an answer without end": {`{"success":true,"result":[` + strings.Repeat(`{"pid":7,"threads":[7]},`, maxAnswer/20), -1},
		"nothing":               {"", -1},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
				b := make([]byte, 1000)
				n, _ := conn.Read(b)
				if want := `{"method":"containerManager.Processes","arg":"machine"}`; strings.TrimSpace(string(b[:n])) != want {
					t.Errorf("asked %q, not %q", b[:n], want)
				}
				_, _ = conn.Write([]byte(c.answer))
				if c.answer == "" {
					_, _ = conn.Read(b) // until nobody waits any more
				}
			}()
			begun := time.Now()
			got, err := guestTasks(path)
			if (err != nil) != (c.want < 0) || err == nil && got != c.want {
				t.Errorf("%d, %v", got, err)
			}
			if took := time.Since(begun); took > 10*askTimeout {
				t.Errorf("it took %v", took)
			}
		})
	}
	if _, err := guestTasks(filepath.Join(t.TempDir(), "nobody")); err == nil {
		t.Error("nobody answers")
	}
}
