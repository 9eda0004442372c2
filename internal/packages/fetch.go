package packages

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pinfold/sandbox"
)

// Use is sets that are here, which nobody removes until Release.
type Use struct {
	// Packages is all that is in them, with versions and digests.
	Packages sandbox.Packages

	held []held
}

// Release says that the sets are not used any more. A nil Use has none.
func (u *Use) Release() {
	if u == nil {
		return
	}
	for _, h := range u.held {
		_ = h.dir.Close() // only a lock
	}
}

// Tree is the files of a set that is held.
type Tree struct {
	Kind   string
	Env    string // the variable in which programs look for such a place
	SHA256 string // of the files, with their names

	dir string
}

// Trees are the files of the sets.
func (u *Use) Trees() (all []Tree) {
	if u == nil {
		return nil
	}
	for _, h := range u.held {
		all = append(all, Tree{h.Kind, kinds[h.Kind].env, h.SHA256, filepath.Join(h.dir.Name(), treeName)})
	}
	return all
}

// Add adds the files to an archive, below a place in it.
func (t Tree) Add(ctx context.Context, place string, when time.Time, to *tar.Writer) error {
	_, _, err := addTree(ctx, t.dir, strings.TrimSuffix(place, "/")+"/", when, to)
	return err
}

// Fetch has the sets here, and fetches what is not. Others that want the same meanwhile
// wait for it, and get its error if it fails.
func (w *Sets) Fetch(ctx context.Context, run Run) (*Use, error) {
	u := &Use{}
	for _, one := range w.all {
		h, err := w.get(ctx, one, run)
		if err != nil {
			u.Release()
			return nil, err
		}
		u.held = append(u.held, h)
		if one.Kind == sandbox.PackagesNPM {
			u.Packages.NPM = h.Lock
		} else {
			u.Packages.Python = h.Lock
		}
	}
	return u, nil
}

func (w *Sets) get(ctx context.Context, one set, run Run) (held, error) {
	s, name := w.store, one.owner+one.key
	for {
		if h, ok := s.hold(one.owner, one.key); ok {
			return h, nil
		}
		s.mu.Lock()
		f := s.flights[name]
		mine := f == nil
		if mine {
			f = &flight{over: make(chan struct{})}
			s.flights[name] = f
		}
		s.mu.Unlock()
		if mine {
			return w.lead(ctx, one, run, name, f)
		}
		select {
		case <-f.over:
		case <-ctx.Done():
			return held{}, context.Cause(ctx)
		}
		if f.err != nil && !errors.Is(f.err, errLeft) {
			return held{}, f.err
		}
	}
}

// errLeft says that who fetched a set was not waited for any more: the next one tries.
var errLeft = errors.New("the request that fetched the packages has ended")

// lead fetches a set for all who wait for it.
func (w *Sets) lead(ctx context.Context, one set, run Run, name string, f *flight) (h held, err error) {
	s := w.store
	f.err = errLeft // also of a panic
	defer func() {
		s.mu.Lock()
		delete(s.flights, name)
		s.mu.Unlock()
		close(f.over)
	}()
	h, ok := s.hold(one.owner, one.key) // it may have come in the last moment
	if !ok {
		if err = w.fetch(ctx, one, run); err == nil {
			if h, ok = s.hold(one.owner, one.key); !ok {
				err = unusable(errors.New("what was fetched is gone"))
			}
		}
	}
	if ctx.Err() == nil {
		f.err = err
	}
	return h, err
}

// fetch runs the installer and keeps what comes out, all of it or nothing.
func (w *Sets) fetch(ctx context.Context, one set, run Run) error {
	if one.owner == loadedName {
		return unusable(errors.New("what was loaded is gone"))
	}
	spec, err := w.installer(one)
	if err != nil {
		return err
	}
	stage, done, err := w.store.stage()
	if err != nil {
		return err
	}
	defer done()
	var lock []byte
	var tree bool
	r := one.record
	result, err := run(ctx, spec, func(a sandbox.Artifact, content io.Reader) (err error) {
		switch a.Path {
		case lockFile:
			lock, err = io.ReadAll(io.LimitReader(content, maxLock+1))
		case treeFile:
			if r.Files, r.Bytes, r.SHA256, err = unpack(ctx, content, stage); err == nil {
				tree = true
			}
		}
		return err
	})
	if err != nil {
		return sandbox.AsError(err).WithField("packages." + one.Kind)
	}
	if why := failed(one, result); why != nil {
		return why
	}
	if len(result.ArtifactsSkipped) > 0 || !tree || len(lock) == 0 || len(lock) > maxLock {
		return broken(one.Kind, "the installer left nothing that could be taken: "+skipped(result))
	}
	if r.Lock, err = readLock(one.Kind, lock, one.Asked); err != nil {
		return broken(one.Kind, err.Error())
	}
	if one.had != nil && !slices.Equal(r.Lock, one.had) {
		return sandbox.AsError(broken(one.Kind, "they are others than the snapshot's sandbox had")).WithHint("name packages in the request, which are then fetched as they are now")
	}
	return w.store.keep(one.owner, stage, r)
}

func skipped(r *sandbox.Result) string {
	var why []string
	for _, s := range r.ArtifactsSkipped {
		why = append(why, sandbox.SafeText(s.Path, 40)+" "+sandbox.SafeText(s.Reason, 200))
	}
	return strings.Join(why, "; ")
}

// broken is the error for packages that are not what they should be.
func broken(kind, why string) error {
	return &sandbox.Error{
		Code: sandbox.CodePackagesFailed, Field: "packages." + kind, Message: "the packages were not taken: " + sandbox.SafeText(why, 500),
		Hint: "nothing of them is kept; look at what the index has under these names",
	}
}

// lastWords is how much of what an installer printed an error repeats.
const lastWords = 1500

// failed says why an installation failed, or nil.
func failed(one set, r *sandbox.Result) error {
	if r.Status == sandbox.StatusSucceeded {
		return nil
	}
	e := &sandbox.Error{Code: sandbox.CodePackagesFailed, Field: "packages." + one.Kind}
	limit, most := limitOf(r)
	switch {
	case r.Cause.Kind == sandbox.CauseWallTime:
		e.Message, e.Hint = fmt.Sprintf("the index did not give the packages within %s", most), "nothing of them is kept; look whether "+sandbox.SafeText(one.Index, 100)+" answers, and try again"
	case limit != "":
		e.Message, e.Hint = fmt.Sprintf("installing the packages took more than an installer may: %s of %s", limit, most), "nothing of them is kept; ask for fewer or smaller packages, or build a template with them"
	case r.Cause.Kind != sandbox.CauseExited:
		e.Message, e.Hint = fmt.Sprintf("installing the packages was ended: %s", r.Cause.Kind), "nothing of them is kept; try again"
	case r.ExitCode != nil && *r.ExitCode == exitNoInstaller:
		k := kinds[one.Kind]
		e.Message = "the template has no installer of " + one.Kind + " packages (" + k.tool + ")"
		return e.WithAdvice(sandbox.Advise("install it on the host: %s; or take a template that has it", sandbox.HostCommand("apt-get install "+k.debian)))
	default:
		e.Message, e.Hint = "the packages could not be installed", "nothing of them is kept; look at the names and versions, and at what the index has"
		if why := unreached(r.Network); why != "" { // and nobody knows what it has
			e.Message += "; " + why
			e.Hint = "nothing of them is kept; look whether " + sandbox.SafeText(one.Index, 100) + " can be reached from the server's host, and try again"
		}
	}
	if r.Network != nil {
		for _, d := range r.Network.Denied {
			switch d.Reason { //nolint:exhaustive // the others are named
			case sandbox.DeniedBytesDown: // said
			case sandbox.DeniedUndeclared:
				e.Message += fmt.Sprintf("; %s is not among the index's endpoints", sandbox.SafeText(d.Host, 100))
				e.Hint = "if the index keeps its files there, its operator adds it to packages.indexes." + one.Kind + ".endpoints"
			default:
				e.Message += fmt.Sprintf("; %s was denied: %s", sandbox.SafeText(d.Host, 100), d.Reason)
			}
		}
	}
	said := strings.TrimSpace(strings.ToValidUTF8(r.Stderr[max(0, len(r.Stderr)-lastWords):], ""))
	if said != "" {
		e.Message += "; the last that the installer said:\n" + said
	}
	return e
}

// unreached says which of the index's hosts was never reached, and why; "" where all were.
func unreached(network *sandbox.NetworkUse) string {
	if network == nil {
		return ""
	}
	for _, e := range network.Endpoints {
		if e.Errors > 0 && e.Errors >= e.Connections && e.LastError != "" {
			return sandbox.SafeText(e.Host, 100) + " was not reached: " + sandbox.SafeText(e.LastError, 300)
		}
	}
	return ""
}

// limitOf is the field of the limit that ended an installation, and what it was; empty where
// it was none. What an index sends without an end is cut off, which the installer takes for
// a broken connection.
func limitOf(r *sandbox.Result) (field, most string) {
	for _, info := range sandbox.LimitTable() {
		if info.Cause == r.Cause.Kind {
			return "limits." + info.Field, sandbox.FormatQuantity(r.Cause.Limit, info.Unit)
		}
	}
	if r.Network != nil && slices.ContainsFunc(r.Network.Denied, func(d sandbox.Denial) bool { return d.Reason == sandbox.DeniedBytesDown }) {
		return "network.limits.bytes_down", sandbox.FormatSize(fetchTraffic)
	}
	return "", ""
}
