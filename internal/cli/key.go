//go:build !lean

package cli

import (
	"cmp"
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/internal/access"
	"pinfold/internal/config/defaults"
	"pinfold/internal/engine/records"
	"pinfold/internal/hostfiles"
	"pinfold/internal/store"
	"pinfold/sandbox"
)

const keyLong = `Keys are made where the server keeps its state, by whoever may write there: no
key is needed to make one, and the server may run meanwhile. A key is shown
once; only a hash of it is kept.

DIR is what the server was given as --state. Without it, that is
/var/lib/pinfold for root and ~/.local/state/pinfold for others.

Scopes: run starts and cancels runs, sandbox is for living sandboxes, and each
reads its own; read reads both and changes nothing; admin is everything, pools
and metrics too.`

const keyExamples = `  pinfold key create --tenant team-a
  pinfold key create --state DIR --scope run --ttl 720h --json | jq -r .key
  pinfold key create --allow 'GET https://api.github.com/repos/**' --allow '@package indexes'
  pinfold key create --tenant team-a --profile plots      for an agent that may use this tool alone
  pinfold key list
  pinfold key revoke ID`

// newKey is what "key create --json" prints: the only time that a whole key is
// seen.
type newKey struct {
	Secret string `json:"key"`

	access.Key
}

// keyFlags are the flags of the commands below "key".
type keyFlags struct {
	state, tenant, name string
	scopes, allow       []string
	profiles            []string
	network             string
	ttl                 string
	json                bool
}

func (a *app) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "Make, list and revoke the keys of a server", Long: keyLong, Example: keyExamples,
		Args: unknownCommand, RunE: helpOnly,
	}
	cmd.AddCommand(a.keyCreateCommand(), a.keyListCommand(), a.keyRevokeCommand())
	for _, c := range append(cmd.Commands(), cmd) {
		c.Annotations = map[string]string{localOnly: "true"}
	}
	return cmd
}

// bind declares the flags that every one of them has.
func (f *keyFlags) bind(set *pflag.FlagSet) {
	set.StringVar(&f.state, "state", "", "the server's state directory (default "+defaults.State()+")")
	group(set, "State", "state DIR")
	set.BoolVar(&f.json, "json", false, "print JSON")
}

// stateDir is the directory that was named, or else the usual one. It must be the
// state of a server: a key in a place that no server uses opens nothing.
func stateDir(named, usual string) (string, error) {
	dir := cmp.Or(named, usual)
	if store.Exists(dir) {
		return dir, nil
	}
	e := hostfiles.PathError(sandbox.CodeFileNotFound, dir, "is not a server's state")
	if _, err := os.Stat(dir); err != nil {
		e = hostfiles.OpenError(dir, err)
	}
	return "", e.WithHint("name the server's state directory with --state; pinfold serve --state DIR makes one, with a first key in DIR/first-key")
}

// keys opens the state directory.
func (f *keyFlags) keys(ctx context.Context, do func(s *access.Service) error) (err error) {
	dir, err := stateDir(f.state, defaults.State())
	if err != nil {
		return err
	}
	s, err := store.Attach(ctx, dir)
	if err != nil {
		return err
	}
	defer func() {
		if cErr := s.Close(); err == nil {
			err = cErr
		}
	}()
	return do(access.NewService(access.Options{Store: s}))
}

func (a *app) keyCreateCommand() *cobra.Command {
	f := &keyFlags{}
	cmd := &cobra.Command{
		Use: "create [flags]", Short: "Make a key and print it, once", Long: keyLong, Args: noArgs, Example: keyExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ttl, err := f.lifetime()
			if err != nil {
				return err
			}
			if len(f.profiles) > 0 && !cmd.Flags().Changed("scope") {
				f.scopes = []string{access.ScopeRun}
			}
			allow, err := f.endpoints()
			if err != nil {
				return err
			}
			return f.keys(cmd.Context(), func(s *access.Service) error {
				key, secret, err := s.CreateConfined(cmd.Context(), f.tenant, f.name, f.scopes, ttl, allow, f.profiles)
				if err != nil {
					return err
				}
				return a.writeLine(f.json, newKey{secret, key}, secret)
			})
		},
	}
	set := cmd.Flags()
	set.StringVar(&f.tenant, "tenant", records.LocalTenant, "whose key it is")
	set.StringVar(&f.name, "name", "", "a name for people")
	set.StringSliceVar(&f.scopes, "scope", []string{access.ScopeRun, access.ScopeSandbox, access.ScopeRead}, "what it may do: "+strings.Join(access.Scopes(), ", "))
	set.StringVar(&f.ttl, "ttl", "", "how long it is good for (default until it is revoked)")
	set.StringArrayVar(&f.allow, allowFlag, nil, "what its sandboxes may reach, of what its tenant's may: HOST, HOST:PORT, *.HOST, 'GET https://HOST/PATH/**', or @SET of the server's; may be repeated")
	set.StringSliceVar(&f.profiles, "profile", nil, "it runs programs with these profiles of the server's and in no other way; its scope is run, or run and read")
	set.StringVar(&f.network, "network", "", "none: its sandboxes may reach nothing")
	group(set, "Key", "tenant NAME", "name TEXT", "scope SCOPES", "ttl TIME", "allow ENDPOINT", "network none", "profile NAMES")
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "scopes" { // as it is called in a key
			name = "scope"
		}
		return pflag.NormalizedName(name)
	})
	f.bind(set)
	return cmd
}

func (f *keyFlags) lifetime() (time.Duration, error) {
	if f.ttl == "" {
		return 0, nil
	}
	ms, err := sandbox.ParseTime(f.ttl)
	if err != nil {
		return 0, prefixed("--ttl", err)
	}
	if ms == 0 {
		return 0, usageError("--ttl: a key that is good for no time").WithHint("leave it out for a key that does not expire")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// listing is the command that lists the keys of the same server.
func (f *keyFlags) listing() string {
	const usual = "pinfold key ls"
	if f.state == "" {
		return usual
	}
	return pasteable(usual, []string{"pinfold", "key", "ls", "--state", f.state})
}

func (a *app) keyListCommand() *cobra.Command {
	f := &keyFlags{}
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List the keys, without their secrets", Args: noArgs, Example: "  pinfold key list --tenant team-a",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.keys(cmd.Context(), func(s *access.Service) error {
				keys, err := s.List(cmd.Context(), f.tenant)
				if err != nil {
					return err
				}
				if f.json {
					return writeList(a, "keys", keys)
				}
				return a.writeTable(keyTable(keys), false)
			})
		},
	}
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "only this tenant's")
	group(cmd.Flags(), "Key", "tenant NAME")
	f.bind(cmd.Flags())
	return cmd
}

// endpoints are what the key's sandboxes may reach; nil: what its tenant's may.
func (f *keyFlags) endpoints() ([]string, error) {
	switch {
	case f.network == "":
		return f.allow, nil
	case f.network != sandbox.NetworkNone:
		return nil, usageError("--network: there is \"none\" alone").WithHint("or name what may be reached with --allow")
	case len(f.allow) > 0:
		return nil, usageError("--network none and --allow").WithHint("leave out one of them")
	}
	return []string{}, nil
}

func keyTable(keys []access.Key) *table {
	t := newTable("KEY", "TENANT", "SCOPES", "STATE", "MADE", "LAST USED", "PROFILES", "NETWORK", "NAME")
	for _, k := range keys {
		state, used := "good", "never"
		switch {
		case k.RevokedAt != nil:
			state = "revoked"
		case k.ExpiresAt != nil && time.Now().After(*k.ExpiresAt):
			state = "expired"
		case k.ExpiresAt != nil:
			state = "expires " + until(*k.ExpiresAt)
		}
		if k.LastUsedAt != nil {
			used = since(*k.LastUsedAt)
		}
		t.row(k.ID, k.Tenant, strings.Join(k.Scopes, ","), state, since(k.CreatedAt), used, usable(k.Profiles), reach(k.Allow), k.Name)
	}
	return t
}

// reach says what a key's sandboxes may reach.
func reach(allow []string) string {
	switch {
	case allow == nil:
		return "as its tenant"
	case len(allow) == 0:
		return sandbox.NetworkNone
	}
	return strings.Join(allow, ", ")
}

// usable says which profiles the requests of a key have to name.
func usable(profiles []string) string {
	if profiles == nil {
		return "any or none"
	}
	return strings.Join(profiles, ", ")
}

func (a *app) keyRevokeCommand() *cobra.Command {
	f := &keyFlags{}
	cmd := &cobra.Command{
		Use: "revoke [flags] ID", Short: "End a key; a running server refuses it within a second", Args: needArgs(1, 1, "a key's id"), Example: "  pinfold key revoke ID",
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.keys(cmd.Context(), func(s *access.Service) error {
				id := args[0]
				if parts := strings.Split(id, "_"); len(parts) > 1 && parts[0] == "pfk" { // a whole key
					id = parts[1]
				}
				key, err := s.Revoke(cmd.Context(), id)
				if e := sandbox.AsError(err); e != nil && e.Code == sandbox.CodeNotFound {
					err = e.WithHint(f.listing() + " lists the keys, also those that were revoked")
				}
				if err != nil || !f.json {
					return err
				}
				return a.writeJSON(key)
			})
		},
	}
	f.bind(cmd.Flags())
	return cmd
}
