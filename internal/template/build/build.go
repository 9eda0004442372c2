package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pinfold/internal/packages"
	"pinfold/internal/template"
	"pinfold/sandbox"
)

// epoch is the time of every file that a build makes, in seconds: 13 September 2020. It is
// after what zip archives can say, and before anything that is built.
const epoch = 1_600_000_000

// Options say how a declaration is built.
type Options struct {
	Name  string // of the template; empty: the declaration's
	Dir   string // where the files that it names are; empty: it may name none
	Fresh bool   // take nothing from earlier builds
	// Progress is told how far the build is, and what its steps print, one thing after the
	// other, by any goroutine. It may be nil.
	Progress func(sandbox.BuildEvent)
}

// Result is what became of a declaration.
type Result struct {
	template.Template

	Cached bool  `json:"cached"` // an earlier build's image is taken
	WallMS int64 `json:"wall_ms"`
}

// Built is the result as servers and programs say it.
func (r Result) Built() sandbox.BuiltTemplate {
	return sandbox.BuiltTemplate{Name: r.Name, Image: string(r.Image.ID), Bytes: r.Image.Bytes(), Packages: r.From.Packages, Cached: r.Cached, WallMS: r.WallMS}
}

// building is one build.
type building struct {
	store  *template.Store
	boxes  Sandboxes
	d      *Declaration
	in     *inputs
	limits amounts
	fresh  bool
	tell   func(sandbox.BuildEvent)
	output io.Writer
	event  sandbox.BuildEvent

	fetched *packages.Use    // of indexes; nil: there are none
	had     sandbox.Packages // that the base has of indexes
}

func (a amounts) time() time.Duration { return time.Duration(a.timeMS) * time.Millisecond }

// errTime ends a step that takes too long.
var errTime = errors.New("the time that a step may take is over")

// Build makes a template of a declaration, in sandboxes of boxes. Errors are
// *sandbox.Error; of a step that fails they have the code build_failed, name it as the
// field and say what it printed last.
func Build(ctx context.Context, s *template.Store, boxes Sandboxes, d *Declaration, o Options) (Result, error) {
	began := time.Now()
	name := cmp.Or(o.Name, d.Name)
	if name == "" {
		return Result{}, invalid("name", "the template has no name").WithHint("write name: NAME into the declaration, or name it with the build")
	}
	if err := template.CheckName(name); err != nil {
		return Result{}, sandbox.AsError(err).WithField("name")
	}
	limits, err := d.Limits.amounts()
	if err != nil {
		return Result{}, err
	}
	in, err := gather(d, o.Dir)
	if err != nil {
		return Result{}, err
	}
	defer in.close()
	hold, err := s.Hold()
	if err != nil {
		return Result{}, err
	}
	defer hold.Close() //nolint:errcheck // only a lock
	b := &building{store: s, boxes: boxes, d: d, in: in, limits: limits, fresh: o.Fresh, tell: inTurns(o.Progress)}
	b.output = printed{b}
	b.event.Of = b.count()
	image, cached, err := b.image(ctx)
	if err != nil {
		return Result{}, err
	}
	t, err := s.Keep(name, image, template.Origin{Kind: "build", Reference: cmp.Or(d.Base.Template, b.debianName()), Packages: b.recorded()})
	return Result{Template: t, Cached: cached, WallMS: time.Since(began).Milliseconds()}, err
}

// inTurns has events come one after the other, though a step's output and the layer that
// is made of it come together.
func inTurns(tell func(sandbox.BuildEvent)) func(sandbox.BuildEvent) {
	var mu sync.Mutex
	return func(e sandbox.BuildEvent) {
		mu.Lock()
		defer mu.Unlock()
		if tell != nil {
			tell(e)
		}
	}
}

func (b *building) debianName() string {
	if b.d.Base.Debian == nil {
		return ""
	}
	return "debian " + b.d.Base.Debian.Suite
}

// printed passes on what a step prints.
type printed struct{ b *building }

// Write implements io.Writer.
func (p printed) Write(text []byte) (int, error) {
	e := p.b.event
	e.Says, e.Output = "", strings.ToValidUTF8(string(text), "\uFFFD")
	p.b.tell(e)
	return len(text), nil
}

// step tells that a step begins.
func (b *building) step(name, says string) {
	b.event = sandbox.BuildEvent{Step: name, Number: b.event.Number + 1, Of: b.event.Of, Says: says}
	b.tell(b.event)
}

// came tells how much of a layer is unpacked.
func (b *building) came(e template.Event) {
	now := b.event
	now.Says, now.Bytes = "", e.Bytes
	b.tell(now)
}

// count is how many steps there are.
func (b *building) count() int {
	n := 1 + len(b.in.debs) + len(b.d.Run)
	for _, there := range []bool{!b.d.Packages.named().Empty(), len(b.in.files) > 0, len(b.in.wheels) > 0, len(b.in.npm) > 0, b.d.runsAnything(), b.d.Start != ""} {
		if there {
			n++
		}
	}
	return n
}

// image makes the image, or takes an earlier build's.
func (b *building) image(ctx context.Context) (image template.Image, cached bool, err error) {
	base, done, err := b.base(ctx)
	if err != nil {
		return image, false, err
	}
	defer done()
	if err := b.fetch(ctx, base); err != nil {
		return image, false, err
	}
	defer b.fetched.Release()
	key := b.key(base)
	if !b.fresh {
		if image, ok := b.store.Built(key); ok {
			return image, true, nil
		}
	}
	image = base
	image.Config = b.config(base.Config)
	for _, add := range []func(context.Context, template.Image) (template.Image, error){b.addFetched, b.unpackDebs, b.addFiles, b.runSteps, b.tryStart} {
		if image, err = add(ctx, image); err != nil {
			return image, false, err
		}
	}
	if image, err = b.store.Compose(ctx, template.Composition{Layers: image.Layers, Config: b.config(base.Config)}, nil); err != nil {
		return image, false, err
	}
	return image, false, b.store.SetBuilt(key, image)
}

// base is what the image begins with. done must be called when the image has a name.
func (b *building) base(ctx context.Context) (template.Image, func(), error) {
	if b.d.Base.Debian != nil {
		image, err := b.debian(ctx, b.d.Base.Debian)
		return image, func() {}, err
	}
	b.step("base", "take "+b.d.Base.Template)
	u, err := b.store.Use(b.d.Base.Template)
	if err != nil {
		e := sandbox.AsError(err)
		if e.Code == sandbox.CodeTemplateUnknown {
			e = e.WithHint("pinfold template list names those there are; pinfold template pull and import bring others")
		}
		return template.Image{}, nil, e.WithField("base")
	}
	b.had = u.Template.From.Packages
	return u.Template.Image, u.Close, nil
}

// debian is a base of Debian's packages, an earlier build's if there is one.
func (b *building) debian(ctx context.Context, d *Debian) (template.Image, error) {
	sources, err := hostSources(d.Suite)
	if err != nil {
		return template.Image{}, err
	}
	key := debianKey(d, sources)
	if !b.fresh {
		if image, ok := b.store.Built(key); ok {
			b.step("base", "take the packages of "+d.Suite+" that are here")
			return image, nil
		}
	}
	b.step("base", "fetch and install packages of "+d.Suite)
	var image template.Image
	err = b.debianLayer(ctx, d, sources, func(r io.ReadCloser) (err error) {
		open := func(context.Context) (io.ReadCloser, error) { return r, nil }
		image, err = b.store.Compose(ctx, template.Composition{More: []template.Blob{{Size: -1, Open: open}}}, b.came)
		return err
	})
	if err != nil {
		return template.Image{}, err
	}
	return image, b.store.SetBuilt(key, image)
}

// config is what the image says about its programs.
func (b *building) config(base template.Config) template.Config {
	c := template.Config{User: cmp.Or(b.d.User, base.User), WorkingDir: cmp.Or(b.d.Workdir, base.WorkingDir), Start: base.Start}
	if b.d.Start != "" {
		c.Start, _ = b.d.start() // it was checked
	}
	own := maps.Clone(b.d.Env)
	if own == nil {
		own = map[string]string{}
	}
	named := func(name string) bool {
		_, ok := own[name]
		return ok || slices.ContainsFunc(base.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	}
	if len(b.in.npm) > 0 && !named("NODE_PATH") {
		own["NODE_PATH"] = nodeModules // where packages go that npm installs for everybody
	}
	b.nameFetched(own, base.Env)
	for _, kv := range base.Env {
		if name, _, _ := strings.Cut(kv, "="); own[name] == "" {
			c.Env = append(c.Env, kv)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		c.Env = append(c.Env, name+"="+own[name])
	}
	return c
}

// stepError is the error of a step that failed.
func (b *building) stepError(why error, field string, said *tail) error {
	if errors.Is(why, context.Canceled) {
		return why
	}
	if errors.Is(why, context.DeadlineExceeded) {
		why = errTime
	}
	e := &sandbox.Error{Code: sandbox.CodeBuildFailed, Field: field, Err: why, Message: fmt.Sprintf("step %d of %d failed: %s", b.event.Number, b.event.Of, sandbox.SafeText(why.Error(), 300))}
	text := said.String()
	if text != "" {
		e.Message += "; the last that it printed:\n" + text
	}
	if strings.Contains(text, "Read-only file system") {
		return e.WithHint("commands can write to /usr/local, /opt, /srv and what writable names; files: puts single files anywhere. Nothing was kept; mend the declaration and build again")
	}
	return e.WithHint("nothing of it was kept; mend the declaration and build again")
}
