package serve

import (
	"context"
	"net"
	"os"
	"time"
)

// notifier tells systemd how far the server is, as sd_notify(3) does: a
// datagram to the socket that the environment names.
type notifier struct{ socket string }

const notifyTimeout = time.Second

// newNotifier takes the address out of the environment, so that no child
// process speaks in our name.
func newNotifier() notifier {
	n := notifier{os.Getenv("NOTIFY_SOCKET")}
	_ = os.Unsetenv("NOTIFY_SOCKET") // fails for impossible names only
	return n
}

// send tells systemd. Nobody listens where there is no systemd, and a message
// that is lost changes nothing here.
func (n notifier) send(state string) {
	if n.socket == "" {
		return
	}
	conn, err := (&net.Dialer{Timeout: notifyTimeout}).DialContext(context.Background(), "unixgram", n.socket)
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(notifyTimeout))
	_, _ = conn.Write([]byte(state))
	_ = conn.Close()
}
