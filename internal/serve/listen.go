package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pinfold/internal/api"
	"pinfold/internal/config"
	"pinfold/internal/config/defaults"
	"pinfold/sandbox"
)

// Bounds on what a client may do before its request is known. There is none on
// the time of an answer: streams last as long as a program runs.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// listener is one address of the server.
type listener struct {
	net.Listener

	unix string      // the socket's path, or empty
	file os.FileInfo // the socket as we made it
}

// listen takes an address of the configuration, the i-th.
func listen(ctx context.Context, i int, address string) (*listener, error) {
	field := fmt.Sprintf("listen[%d]", i)
	if path, unix := strings.CutPrefix(address, config.UnixPrefix); unix {
		return listenUnix(ctx, field, path)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, cannotListen(field, address, err)
	}
	return &listener{Listener: l}, nil
}

func cannotListen(field, address string, err error) error {
	e := &sandbox.Error{Code: sandbox.CodeConfigInvalid, Field: field, Err: err}
	why := err
	var op *net.OpError
	if errors.As(err, &op) {
		why = op.Err
	}
	e.Message = "cannot listen on " + sandbox.SafeText(address, 120) + ": " + sandbox.SafeText(why.Error(), 120)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Code, e.Hint = sandbox.CodeConflict, "another program has it; give another with --listen, or end that program"
	case errors.Is(err, syscall.EACCES):
		e.Hint = "ports below 1024 and other people's directories need more rights: --listen " + defaults.Listen
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		e.Hint = "this machine does not have that address; ip address shows those that it has"
	case errors.Is(err, os.ErrNotExist):
		e.Hint = "make the directory first: mkdir -p " + filepath.Dir(address)
	}
	return e
}

// listenUnix makes a socket that nobody but this user can open, at any moment:
// it gets its name only when it has its mode. What a dead server left is
// replaced.
func listenUnix(ctx context.Context, field, path string) (*listener, error) {
	if err := checkSocket(ctx, field, path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".pinfold") // mode 0700
	if err != nil {
		return nil, cannotListen(field, path, err)
	}
	defer os.RemoveAll(private) //nolint:errcheck // it is empty by then
	hidden := filepath.Join(private, "s")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", hidden)
	if err != nil {
		return nil, cannotListen(field, path, err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // it would remove a name that it no longer has
	}
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		err = os.Rename(hidden, path)
	}
	info, statErr := os.Lstat(path)
	if err = errors.Join(err, statErr); err != nil {
		_ = l.Close()
		return nil, cannotListen(field, path, err)
	}
	return &listener{Listener: l, unix: path, file: info}, nil
}

// checkSocket refuses a path at which there is anything but a socket that
// nobody answers.
func checkSocket(ctx context.Context, field, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cannotListen(field, path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return &sandbox.Error{
			Code: sandbox.CodeConflict, Field: field, Message: path + " exists and is not a socket", Hint: "give another path, or move that file away",
		}
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err == nil {
		_ = conn.Close()
		err = errors.New("another server answers there")
	}
	return &sandbox.Error{
		Code: sandbox.CodeConflict, Field: field, Message: "cannot take the socket " + path + ": " + sandbox.SafeText(err.Error(), 120),
		Hint: "end that server, or give another path", Err: err,
	}
}

// close ends the listener and removes its socket, unless somebody else has
// put another one in its place.
func (l *listener) close() {
	_ = l.Close() // the HTTP server may have closed it already
	if l.unix == "" {
		return
	}
	if now, err := os.Lstat(l.unix); err == nil && os.SameFile(now, l.file) {
		_ = os.Remove(l.unix) // what stays is replaced at the next start
	}
}

// url is where clients find the listener.
func (l *listener) url(tls bool) string {
	switch {
	case l.unix != "":
		return config.UnixPrefix + l.unix
	case tls:
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// newHTTP makes the server that all listeners share.
func (s *server) newHTTP(handler http.Handler) *http.Server {
	h := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // clients that break the protocol
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if c.LocalAddr().Network() == "unix" { // its mode has let in who speaks
				return api.WithLocalPeer(ctx)
			}
			return ctx
		},
	}
	if s.cert != nil {
		h.TLSConfig = s.cert.config()
	}
	return h
}

// serveOn answers on one listener until the server is shut down.
func (s *server) serveOn(l *listener) error {
	var err error
	if s.cert != nil && l.unix == "" {
		err = s.http.ServeTLS(l.Listener, "", "")
	} else {
		err = s.http.Serve(l.Listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return &sandbox.Error{Code: sandbox.CodeInternal, Message: "a listener failed: " + err.Error(), Err: err}
}

// hostsWithoutPorts is allowed_hosts as the API compares it.
func hostsWithoutPorts(hosts []string) []string {
	var out []string
	for _, host := range hosts {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		out = append(out, host)
	}
	return out
}
