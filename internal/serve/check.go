package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"pinfold/internal/config"
	"pinfold/internal/engine"
	"pinfold/internal/hostfiles"
	"pinfold/internal/probe"
	"pinfold/internal/secret/vault"
	"pinfold/internal/store"
	"pinfold/sandbox"
)

// Finding is what Check found out about one thing.
type Finding struct {
	What   string `json:"what"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Check looks at everything that Serve would need, without serving: the
// certificate, the sockets' directories, the state, the host and the drivers. It
// makes no state where there is none. It may be called while a server runs.
func Check(ctx context.Context, c *config.Config, o Options) []Finding {
	found := []Finding{Configured(nil)}
	if c.TLS.Cert != "" {
		_, err := loadCertificate(c.TLS)
		found = append(found, finding("certificate", "certificate and key belong together", err))
	}
	if file := c.Secrets.KeyFile; file != "" {
		_, err := vault.ReadKey(file)
		found = append(found, finding("secrets", "the key of secrets can be read", err))
	}
	if file := c.Gate.File; file != "" {
		_, err := readGate(file)
		found = append(found, finding("gate", "the output gate can be read, and its schemas be used", err))
	}
	if len(c.Profiles) > 0 {
		_, err := readProfiles(ctx, c)
		found = append(found, finding("profiles", "what the profiles reach, their tenants may", err))
	}
	for i, address := range c.Listen {
		if path, unix := strings.CutPrefix(address, config.UnixPrefix); unix {
			found = append(found, finding(fmt.Sprintf("listen[%d]", i), "the socket's directory is there", checkDirectory(filepath.Dir(path))))
		}
	}
	found = append(found, checkState(ctx, c.State))
	if o.Probe != nil {
		found = append(found, checkHost(o.Probe(ctx))...)
	}
	found = append(found, checkRoom(c, o)...)
	return append(found, checkDrivers(ctx, o)...)
}

// maxWrong bounds what is said of one configuration.
const maxWrong = 20

// Misconfigured are the findings about a configuration, given the error of
// reading it: one for each thing that is wrong. There is nothing else to look at.
func Misconfigured(err error) (found []Finding) {
	if all, ok := err.(interface{ Unwrap() []error }); ok { // what was joined, and no more
		for _, one := range all.Unwrap() {
			found = append(found, Misconfigured(one)...)
		}
		if len(found) > maxWrong {
			found = append(found[:maxWrong], Finding{What: "configuration", Detail: "there is more, which is said once these are mended"})
		}
		return found
	}
	return []Finding{Configured(err)}
}

// Configured is the finding about a configuration, given the error of reading it
// or nil.
func Configured(err error) Finding {
	f := finding("configuration", "every key is known and in range", err)
	if e := sandbox.AsError(err); e != nil && e.Field != "" {
		f.Detail = e.Field + ": " + f.Detail
	}
	return f
}

// finding is about something that is well unless there is an error.
func finding(what, well string, err error) Finding {
	if err == nil {
		return Finding{What: what, OK: true, Detail: well}
	}
	e := sandbox.AsError(err)
	return Finding{What: what, Detail: e.Message, Fix: e.Hint}
}

func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return (&sandbox.Error{Code: sandbox.CodeConfigInvalid, Message: sandbox.SafeText(err.Error(), 200), Err: err}).WithHint("mkdir -p " + dir)
	case !info.IsDir():
		return &sandbox.Error{Code: sandbox.CodeConfigInvalid, Message: dir + " is not a directory"}
	}
	return nil
}

// checkState looks at the directory, and reads the whole database, if there is
// one.
func checkState(ctx context.Context, dir string) Finding {
	const what = "state"
	if _, err := os.Stat(dir); err == nil {
		if err := store.CheckDir(dir); err != nil {
			return finding(what, "", err)
		}
	}
	_, err := os.Lstat(filepath.Join(dir, "pinfold.db"))
	if errors.Is(err, os.ErrNotExist) {
		if err := canBeMade(dir); err != nil {
			return finding(what, "", err)
		}
		return Finding{What: what, OK: true, Detail: "nothing is there yet; it will be made in " + dir}
	}
	s, err := store.Attach(ctx, dir)
	if err != nil {
		return finding(what, "", err)
	}
	err = s.Check(ctx)
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return finding(what, "the database in "+dir+" is whole", err)
}

// canBeMade tries a directory of another name in its place, or above it, and removes it.
func canBeMade(dir string) error {
	above := dir
	for {
		if _, err := os.Stat(above); err == nil || above == filepath.Dir(above) {
			break
		}
		above = filepath.Dir(above)
	}
	tried, err := os.MkdirTemp(above, ".pinfold-check-")
	if err == nil {
		err = os.Remove(tried)
	}
	if err == nil {
		return nil
	}
	return (&sandbox.Error{Code: sandbox.CodeConfigInvalid, Message: fmt.Sprintf("nothing can be made in %s: %s", above, hostfiles.Reason(err)), Err: err}).
		WithHint("with --state, name a directory that this user can make")
}

// checkHost repeats what makes the native driver impossible, and counts the
// rest.
func checkHost(found []probe.Finding) []Finding {
	var problems []Finding
	warnings := 0
	for _, f := range found {
		switch f.Severity {
		case probe.Problem:
			problems = append(problems, Finding{What: "host: " + f.Title, Detail: f.Probed + "; " + f.Means, Fix: f.Fix})
		case probe.Warning:
			warnings++
		case probe.Info, probe.OK:
		}
	}
	if len(problems) > 0 {
		return problems
	}
	well := "sandboxes can be made"
	if warnings > 0 {
		well += fmt.Sprintf("; pinfold doctor explains what it warns of (%d)", warnings)
	}
	return []Finding{{What: "host", OK: true, Detail: well}}
}

func checkDrivers(ctx context.Context, o Options) []Finding {
	e, err := o.NewEngine(engine.Options{})
	if err != nil {
		return []Finding{finding("drivers", "", err)}
	}
	defer e.Close() //nolint:errcheck // it has made nothing
	reports, err := e.Reports(ctx)
	if err != nil {
		return []Finding{finding("drivers", "", err)}
	}
	var found []Finding
	for _, r := range reports {
		f := finding("driver "+r.Driver, "works here", nil)
		switch {
		case r.Blocked == nil:
		case !sandbox.LevelAtLeast(r.Level, sandbox.LevelNamespace): // nobody gets it unasked
			f.Detail = "cannot work here: " + r.Blocked.Message
		default:
			f = finding("driver "+r.Driver, "", r.Blocked)
		}
		found = append(found, f)
	}
	return found
}

// warnOfDrivers says in the log which drivers cannot work here, where the configuration names
// any. A goroutine looks, beside the first requests: to look at qemu may mean to boot a machine.
// The returned function ends it and waits for it.
func (s *server) warnOfDrivers(ctx context.Context) (stop func()) {
	if s.config.Drivers == (config.Drivers{}) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var over sync.WaitGroup
	over.Go(func() {
		for _, name := range s.engine.Drivers() {
			r, err := s.engine.Report(ctx, name)
			if err == nil && r.Blocked != nil && sandbox.LevelAtLeast(r.Level, sandbox.LevelNamespace) { // nobody gets a weaker one unasked
				err = r.Blocked
			}
			if err != nil && ctx.Err() == nil {
				e := sandbox.AsError(err)
				s.log.Warn("a driver cannot work here", "driver", name, "error", e.Message, "fix", e.Hint)
			}
		}
	})
	return func() { cancel(); over.Wait() }
}
