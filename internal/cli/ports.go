package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/sandbox"
)

const forwardLong = `Listens on this machine and carries each connection to a port inside, through
the server and with its key: whatever is spoken there, and to any program here.
It goes on until the sandbox ends or Ctrl-C.

Who may use this machine may use the port: it listens on 127.0.0.1 only.`

const forwardExamples = `  pinfold port-forward $box 8000        http://127.0.0.1:8000/ is port 8000 inside
  pinfold port-forward $box 5433:5432   5433 here is 5432 there
  pinfold port-forward $box :8000       a free port here, which is printed`

// forward is one port of this machine for one inside.
type forward struct{ local, inside int }

func (a *app) portForwardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "port-forward SANDBOX [LOCAL:]PORT...", Short: "Reach a server in a sandbox from this machine", Long: forwardLong, Example: forwardExamples,
		Args: needArgs(2, -1, "a sandbox and at least one port"), ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("sbx", args[0]); err != nil {
				return err
			}
			var all []forward
			for _, word := range args[1:] {
				f, err := parseForward(word)
				if err != nil {
					return err
				}
				all = append(all, f)
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				err := a.forward(ctx, c.Sandbox(args[0]), all)
				if ctx.Err() != nil { // told to go, which is how it ends
					return &stoppedError{}
				}
				return err
			})
		},
	}
	return cmd
}

func parseForward(word string) (forward, error) {
	local, inside, two := strings.Cut(word, ":")
	if !two {
		inside = local
	}
	f := forward{}
	var err error
	if f.inside, err = strconv.Atoi(inside); err != nil || f.inside < 1 || f.inside > 65535 {
		return f, badForward(word)
	}
	if local != "" {
		if f.local, err = strconv.Atoi(local); err != nil || f.local < 1 || f.local > 65535 {
			return f, badForward(word)
		}
	}
	return f, nil
}

func badForward(word string) error {
	return usageError("\"%s\" is no port", sandbox.SafeText(word, 40)).WithHint("write 8000, 9000:8000 (here:inside) or :8000 (any free port here)")
}

// watchEvery is how often the sandbox is asked whether it still lives.
const watchEvery = 2 * time.Second

// forward listens and carries until the sandbox ends or ctx does.
func (a *app) forward(ctx context.Context, box *client.Sandbox, all []forward) error {
	info, err := box.Info(ctx)
	if err != nil {
		return err
	}
	if info.State != sandbox.StateRunning {
		return &sandbox.Error{Code: sandbox.CodeGone, Message: "the sandbox is " + sandbox.SafeText(string(info.State), 20), Hint: "pinfold ls lists those that run"}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var going sync.WaitGroup
	defer going.Wait()
	defer cancel(nil)
	for _, f := range all {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.local)))
		if err != nil {
			return &sandbox.Error{
				Code: sandbox.CodeResourceUnavailable, Message: fmt.Sprintf("cannot listen on port %d of this machine: %v", f.local, errors.Unwrap(err)),
				Hint: fmt.Sprintf("pinfold port-forward %s :%d takes a free one", box.ID(), f.inside), Err: err,
			}
		}
		context.AfterFunc(ctx, func() { _ = l.Close() }) // only listens
		going.Go(func() { a.serveForward(ctx, box, l, f.inside, &going) })
		if err := a.write([]byte(fmt.Sprintf("http://%s is port %d in the sandbox\n", l.Addr(), f.inside))); err != nil {
			return err
		}
	}
	return awaitEnd(ctx, box)
}

// awaitEnd returns when the sandbox has ended or cannot be asked for any more.
func awaitEnd(ctx context.Context, box *client.Sandbox) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(watchEvery):
		}
		info, err := box.Info(ctx)
		switch {
		case err != nil && sandbox.AsError(err).Code == sandbox.CodeDisconnected: // the server may come back
		case err != nil:
			return err
		case info.State != sandbox.StateRunning:
			return &sandbox.Error{Code: sandbox.CodeGone, Message: "the sandbox has ended", Hint: "pinfold ls --all says why"}
		}
	}
}

// maxForwarded bounds the connections of one port at a time.
const maxForwarded = 1000

func (a *app) serveForward(ctx context.Context, box *client.Sandbox, l net.Listener, port int, going *sync.WaitGroup) {
	places := make(chan struct{}, maxForwarded)
	for {
		conn, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		places <- struct{}{}
		going.Go(func() {
			defer func() { <-places }()
			defer conn.Close() //nolint:errcheck // both directions have ended
			inside, err := box.Dial(ctx, port)
			if err != nil {
				if ctx.Err() == nil {
					a.say("%s", sandbox.SafeText(sandbox.AsError(err).Message, maxMessage))
				}
				return
			}
			defer inside.Close() //nolint:errcheck // as above
			defer context.AfterFunc(ctx, func() { _ = conn.Close(); _ = inside.Close() })()
			both(conn, inside)
		})
	}
}

// both copies in both directions until both have ended: each side may say that
// it sends no more, and read on.
func both(a, b net.Conn) {
	var one sync.WaitGroup
	one.Go(func() { carry(a, b) })
	carry(b, a)
	one.Wait()
}

// carry copies until the end, and passes that on. One that breaks ends both.
func carry(from, to net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = from.Close(), to.Close()
		return
	}
	if w, ok := to.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite() // it may have gone
	}
}

func (a *app) linkCommand() *cobra.Command {
	var ttl time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use: "link [flags] SANDBOX PORT", Short: "Make an address of a server in a sandbox for a browser",
		Long:    "Whoever has the address may use that port, without a key, until its time is over.\nIt ends earlier with the sandbox, and with the key that it was made with.",
		Example: "  pinfold link $box 8000\n  pinfold link --ttl 10m $box 8000", Args: needArgs(2, 2, "a sandbox and a port"), ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("sbx", args[0]); err != nil {
				return err
			}
			port, err := strconv.Atoi(args[1])
			if err != nil || port < 1 || port > 65535 {
				return usageError("\"%s\" is no port", sandbox.SafeText(args[1], 40)).WithHint("a port is 1 to 65535: pinfold link " + args[0] + " 8000")
			}
			if ttl < time.Millisecond { // a client's zero is the default
				return usageError("--ttl: %s is no time to live", ttl).WithHint("leave it out for an hour, or write --ttl 10m; zero does not mean unlimited")
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				l, err := c.Sandbox(args[0]).Link(ctx, port, ttl)
				if err != nil {
					return err
				}
				if l.URL == "" && !asJSON {
					a.say("a unix socket is nothing for a browser: put the address of the same server before this path; pinfold serve --listen 127.0.0.1:7463 besides the socket gives it one")
				}
				return a.writeLine(asJSON, l, sandbox.SafeText(cmp.Or(l.URL, l.Path), 4096))
			})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long it works")
	group(cmd.Flags(), "Flags", "ttl TIME")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
