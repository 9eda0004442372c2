package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/internal/config/defaults"
	"pinfold/sandbox"
)

// groupServer is the group of flags that every command has which can speak to
// a server.
const groupServer = "Server"

// localOnly marks commands that never speak to a server, so that their help
// does not show its flags.
const localOnly = "pinfold_local"

// serverFlags say which server to ask, and as whom.
type serverFlags struct{ server, key, keyFile string }

// bindServer declares the flags on the root command, for all of them.
func (a *app) bindServer(root *cobra.Command) {
	set := root.PersistentFlags()
	set.StringVar(&a.at.server, "server", "", "ask this server (default $"+client.ServerEnv+")")
	set.StringVar(&a.at.key, "key", "", "the API key; others on this machine can see it (default $"+client.KeyEnv+")")
	set.StringVar(&a.at.keyFile, "key-file", "", "read the API key from a file")
	group(set, groupServer, "server URL", "key KEY", "key-file FILE")
}

// address is the server that was named, "" when there is none.
func (f serverFlags) address() string {
	return cmp.Or(f.server, os.Getenv(client.ServerEnv))
}

// remote says whether a server was named.
func (a *app) remote() bool { return a.at.address() != "" }

// connect returns a client of the server. Nothing is sent yet.
func (a *app) connect() (*client.Client, error) {
	server := a.at.address()
	if server == "" {
		return nil, &sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Message: "no server",
			Hint: `start one with "pinfold serve", or name it with --server http://` + defaults.Listen,
		}
	}
	key, err := a.apiKey(server)
	if err != nil {
		return nil, err
	}
	c, err := client.New(server, client.WithKey(key), client.WithUserAgent("pinfold/"+a.Version))
	if err != nil && a.at.server != "" {
		err = prefixed("--server", err)
	}
	return c, err
}

// with connects and gives the client to f. Ctrl-C ends the context; what was
// asked of the server may go on there.
func (a *app) with(ctx context.Context, f func(ctx context.Context, c *client.Client) error) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // idle connections only
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer cancelOnSignal(cancel)()
	err = f(ctx, c)
	if toldToGo(ctx, err) {
		return cancelled()
	}
	return err
}

// toldToGo says whether an error is only that ctx was cancelled.
func toldToGo(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// cancelled is the error of a command that was told to go. What it was waiting
// for then is no news.
func cancelled() *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeDisconnected, Message: "cancelled", Err: context.Canceled}
}

const maxKeyFile = 4096

// apiKey is the key that was given; or, for a server on this machine, the one
// that it made at its first start, where this user may read it.
func (a *app) apiKey(server string) (string, error) {
	switch {
	case a.at.key != "":
		return a.at.key, nil
	case a.at.keyFile != "":
		text, err := a.readBounded(a.at.keyFile, maxKeyFile)
		if err != nil {
			return "", prefixed("--key-file", err)
		}
		return strings.TrimSpace(string(text)), nil
	case os.Getenv(client.KeyEnv) != "":
		return os.Getenv(client.KeyEnv), nil
	case !isLoopback(server):
		return "", nil
	}
	text, err := a.readBounded(filepath.Join(defaults.State(), firstKeyFile), maxKeyFile)
	if err != nil {
		return "", nil //nolint:nilerr // not there or not ours: the server will say that a key is missing
	}
	return strings.TrimSpace(string(text)), nil
}

// firstKeyFile is where a server writes its first key, below its state.
const firstKeyFile = "first-key"

// isLoopback says whether a server's address is this machine's own.
func isLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// needArgs is the argument check of commands with named arguments.
func needArgs(atLeast, atMost int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= atLeast && (atMost < 0 || len(args) <= atMost) {
			return nil
		}
		return usageError("%s takes %s", strings.TrimPrefix(cmd.CommandPath(), "pinfold "), names).
			WithHint(fmt.Sprintf("%s --help", cmd.CommandPath()))
	}
}
