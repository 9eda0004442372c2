package runs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"runtime"
	"slices"
	"strconv"
	"time"

	"pinfold/internal/compilecache"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/pool"
	"pinfold/sandbox"
)

// products are what a compile step made, on their way into the sandbox that
// runs it.
type products interface {
	copyTo(ctx context.Context, to *execution.Session, from, dir string) error
	close(ctx context.Context) error
}

// compiled takes the products of the compile step from the cache, or compiles.
// ok says that the program may run; otherwise the result says why not. The
// products are never nil and must be closed, also with an error.
func (j *job) compiled(ctx context.Context) (p products, ok bool, err error) {
	start := time.Now()
	key, cacheable := j.compileKey()
	if !cacheable {
		f := &fresh{done: func() {}, job: j}
		f.session, ok, _, err = j.compile(ctx)
		return f, ok, err
	}
	cache, tenant := j.runner.compileCache, j.request.Tenant
	entry, done := cache.Get(ctx, tenant, key)
	if entry != nil {
		code := 0
		j.result.Compile = &sandbox.Compile{
			Cached: true, ExitCode: &code, Stdout: entry.Said.Stdout, Stderr: entry.Said.Stderr, Limits: j.steps.Compile.Limits,
		}
		j.result.Timings.CompileMS = execution.Milliseconds(time.Since(start))
		return kept{entry}, true, nil
	}
	f := &fresh{done: done, job: j}
	var clean bool
	f.session, ok, clean, err = j.compile(ctx)
	// What the compiler left running must not write into what is copied.
	if clean && f.session.KillGuest(ctx, execution.KillBeforeCollecting) {
		said := compilecache.Said{Stdout: j.result.Compile.Stdout, Stderr: j.result.Compile.Stderr}
		f.record = cache.Put(tenant, key)
		f.keep = func() { j.keep(f.record.Keep(said)) }
	}
	return f, ok, err
}

func (j *job) keep(err error) {
	if err != nil && !errors.Is(err, compilecache.ErrNotKept) {
		j.runner.log.Warn("what was compiled cannot be kept", "run", j.result.ID, "error", err)
	}
}

// isClean says that a compile step that succeeded would do so again in the same
// way: nothing was cut, refused for a limit's sake, or left running.
func isClean(r *execution.Outcome, c *sandbox.Compile) bool {
	u := r.Usage
	limited := u.OOMKills > 0 || u.DiskFull || u.InodesFull || u.ProcessesFull || u.ProcessesDenied > 0 || u.Killed != ""
	return !limited && !r.Held && !c.StdoutTruncated && !c.StderrTruncated
}

// clocks are words in a source for which a compiler puts in the time. A program
// that has one is compiled each time.
var clocks = [][]byte{[]byte("__DATE__"), []byte("__TIME__"), []byte("__TIMESTAMP__")}

// compileFormat changes when the same request would be compiled in another way
// than before, so that no entry of an older Pinfold is used.
const compileFormat = "1"

// compileKey is a hash over everything that decides what the compile step
// makes. ok is false when something does that it cannot cover, or the caller
// wants a fresh outcome.
func (j *job) compileKey() (key compilecache.Key, ok bool) {
	s := j.spec
	// Of places that no other machine has, what is made may speak; of mounts and of what is streamed in, the content is not known before;
	// compilers have no network (compile).
	if j.runner.compileCache == nil || j.plan.Places != "" || s.Cold || len(s.Mounts) > 0 || j.packages != nil || len(j.request.Inputs) > 0 {
		return key, false
	}
	seen, known := j.runner.toolchains.fingerprint(j.plan.Template)
	if !known {
		return key, false
	}
	step := *j.steps.Compile
	limits, err := json.Marshal(step.Limits)
	if err != nil {
		return key, false
	}
	d := keyHash{sha256.New()}
	d.words(compileFormat, runtime.GOARCH, j.request.Tenant, j.result.Language, j.plan.Template.ID, string(seen[:]))
	d.words(j.plan.Template.Stamp(j.runner.host, step.Args))
	d.words(j.driver.Name(), j.plan.Hostname, strconv.FormatBool(j.plan.SwitchUser))
	d.words(j.plan.Posture.Enforced...)
	d.words(step.Args...)
	d.words(execution.Environment(j.plan.User, step.Env, s.Env)...)
	d.words(j.plan.User.Home, strconv.Itoa(j.plan.User.UID), strconv.Itoa(j.plan.User.GID), string(limits), j.steps.Dir)
	for _, f := range j.steps.Files {
		d.file(f.Path, false, f.Content)
	}
	d.words(j.main, s.Code)
	timed := hasClock([]byte(s.Code))
	for _, f := range s.Files {
		content, err := f.Bytes()
		if err != nil {
			return key, false
		}
		d.file(f.Path, f.Executable, content)
		timed = timed || hasClock(content)
	}
	return compilecache.Key(d.h.Sum(nil)), !timed
}

func hasClock(source []byte) bool {
	return slices.ContainsFunc(clocks, func(word []byte) bool { return bytes.Contains(source, word) })
}

// keyHash hashes lists of words so that no two different ones look the same.
type keyHash struct{ h hash.Hash }

func (d keyHash) words(words ...string) {
	d.number(len(words))
	for _, w := range words {
		d.number(len(w))
		_, _ = io.WriteString(d.h, w) // a hash takes everything
	}
}

func (d keyHash) file(path string, executable bool, content []byte) {
	d.words(path, strconv.FormatBool(executable))
	d.number(len(content))
	_, _ = d.h.Write(content)
}

func (d keyHash) number(n int) {
	_, _ = d.h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) //nolint:gosec // a length
}

// kept are products from the cache.
type kept struct{ entry *compilecache.Entry }

func (k kept) copyTo(ctx context.Context, to *execution.Session, _, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, productsTimeout)
	defer cancel()
	for _, f := range k.entry.Files {
		if err := to.WriteFile(ctx, dir+"/"+f.Path, productMode, f.Size, k.entry.Content(f)); err != nil {
			return err
		}
	}
	return nil
}

func (k kept) close(context.Context) error { return k.entry.Close() }

// fresh are products in the sandbox in which they were compiled.
type fresh struct {
	job     *job
	session *execution.Session   // nil when it could not be made, or is gone
	record  *compilecache.Writer // takes them for the cache; nil: it does not
	keep    func()               // makes what was recorded an entry
	done    func()               // lets others go on who want the same
}

func (f *fresh) close(ctx context.Context) error {
	f.done()
	if f.record != nil {
		f.record.Discard() // unless it was kept
	}
	f.destroy(ctx)
	return nil
}

// destroy ends the sandbox, once.
func (f *fresh) destroy(ctx context.Context) {
	if s := f.session; s != nil {
		f.session = nil
		f.job.destroy(ctx, &pool.Machine{Session: s})
	}
}

// maxProducts bounds what a compile step may hand on.
const maxProducts = 4096

// productsTimeout bounds how long products may take to come from one sandbox to the other.
const productsTimeout = 5 * time.Minute

// productMode is every product's mode: among them are programs.
const productMode = 0o755

// copyTo moves what was compiled from one sandbox to the other, and ends the
// first. Both are hostile: names are checked, sizes are bounded by the second
// one's disk. What is recorded is what arrived, and only regular files.
func (f *fresh) copyTo(ctx context.Context, to *execution.Session, from, dir string) error {
	defer f.done()
	ctx, cancel := context.WithTimeout(ctx, productsTimeout)
	defer cancel()
	found, err := f.session.Greeted().Glob(ctx, from, []string{"**"}, maxProducts)
	if err != nil {
		return err
	}
	if found.More {
		return sandbox.Errorf(sandbox.CodeTooLarge, "the compiler made more than %d files", maxProducts)
	}
	whole := found.Unprintable == 0
	for _, file := range found.Files {
		if file.Type != "file" {
			whole = false
			continue
		}
		if err := f.copyFile(ctx, to, from, dir, file.Path, file.Size); err != nil {
			return err
		}
	}
	if f.record != nil && whole {
		f.keep()
		f.record = nil
	}
	f.destroy(ctx)
	return nil
}

func (f *fresh) copyFile(ctx context.Context, to *execution.Session, from, dir, name string, size int64) error {
	r, w := io.Pipe()
	go func() {
		_, err := f.session.Greeted().ReadFile(ctx, from+"/"+name, size, w)
		w.CloseWithError(err)
	}()
	var content io.Reader = r
	if f.record != nil {
		content = io.TeeReader(r, f.record.File(name))
	}
	err := to.WriteFile(ctx, dir+"/"+name, productMode, size, content)
	r.CloseWithError(io.ErrClosedPipe)
	return err
}
