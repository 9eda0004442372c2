package packages

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"pinfold/sandbox"
)

// # Bundles
//
// A bundle is sets in a file, for machines that reach no index. What is loaded of one is the
// operator's: every tenant's requests find it, nobody's requests remove it, and it is shown
// read-only as all sets are. A bundle is hostile until it is loaded: nothing in it is run,
// its files are unpacked by the rules of archives, and they are the ones that its record says
// or none.

// bundleName is a bundle's first entry; set after set follows, each an archive.
const (
	bundleName    = "pinfold-packages.json"
	bundleVersion = 1
	maxBundleHead = 4 << 20
)

// bundleHead is what a bundle says of itself.
type bundleHead struct {
	V    int      `json:"v"`
	Sets []record `json:"sets"`
}

// Loaded is a set that was loaded.
type Loaded struct {
	ID       string   `json:"id"`
	Kind     string   `json:"kind"`
	Platform string   `json:"platform"` // the interpreter that it is for, or the template
	Index    string   `json:"index"`    // where it came from
	Asked    []string `json:"asked"`
	Packages []string `json:"packages"` // all that is in it, with versions and digests
	Bytes    int64    `json:"bytes"`
	SHA256   string   `json:"sha256"` // of the files
}

func shown(r record) Loaded {
	return Loaded{r.key()[:12], r.Kind, r.Platform, r.Index, r.Asked, r.Lock, r.Bytes, r.SHA256}
}

// Bundle fetches the sets, where they are not here, and writes them as a bundle, which is the
// same for the same sets. It says what is in it.
func (w *Sets) Bundle(ctx context.Context, run Run, to io.Writer) ([]Loaded, error) {
	if w == nil {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "packages", Message: "no packages are named", Hint: "such as python:rich==13.9.4"}
	}
	u, err := w.Fetch(ctx, run)
	if err != nil {
		return nil, err
	}
	defer u.Release()
	head, all := bundleHead{V: bundleVersion}, []Loaded{}
	for _, h := range u.held {
		head.Sets, all = append(head.Sets, h.record), append(all, shown(h.record))
	}
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	out := tar.NewWriter(to)
	if err := out.WriteHeader(&tar.Header{Name: bundleName, Mode: fileMode, Size: int64(len(text))}); err != nil {
		return nil, err
	}
	if _, err := out.Write(text); err != nil {
		return nil, err
	}
	for i, h := range u.held {
		dir := filepath.Join(h.dir.Name(), treeName)
		var size counter
		if _, _, err := writeTree(ctx, dir, &size); err != nil {
			return nil, err
		}
		if err := out.WriteHeader(&tar.Header{Name: entryName(i), Mode: fileMode, Size: int64(size)}); err != nil {
			return nil, err
		}
		if _, _, err := writeTree(ctx, dir, out); err != nil {
			return nil, err
		}
	}
	return all, out.Close()
}

func entryName(i int) string { return fmt.Sprintf("%d.tar", i) }

// counter counts what is written.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// Load takes the sets of a bundle in, all of them or none, for the requests of every tenant.
// One that is here already, and is another, makes place for it.
func (s *Store) Load(ctx context.Context, from io.Reader) ([]Loaded, error) {
	in := tar.NewReader(from)
	head, err := readBundleHead(in)
	if err != nil {
		return nil, err
	}
	var stages []string
	for i, r := range head.Sets {
		stage, done, err := s.stage()
		if err != nil {
			return nil, err
		}
		defer done()
		h, err := in.Next()
		if err != nil || h.Name != entryName(i) || h.Typeflag != tar.TypeReg {
			return nil, notABundle("it breaks off")
		}
		files, bytes, sum, err := unpack(ctx, in, stage)
		if err != nil {
			return nil, notABundle(sandbox.AsError(err).Message)
		}
		if files != r.Files || bytes != r.Bytes || sum != r.SHA256 {
			return nil, notABundle("its files are not those that it says")
		}
		stages = append(stages, stage)
	}
	all := []Loaded{}
	for i, r := range head.Sets {
		if err := s.forget(r); err != nil {
			return all, err
		}
		if err := s.keep(loadedName, stages[i], r); err != nil {
			return all, err
		}
		all = append(all, shown(r))
	}
	return all, nil
}

func readBundleHead(in *tar.Reader) (head bundleHead, err error) {
	h, err := in.Next()
	if err != nil || h.Name != bundleName || h.Size > maxBundleHead {
		return head, notABundle("it does not begin as one")
	}
	text, err := io.ReadAll(io.LimitReader(in, maxBundleHead))
	if err != nil || json.Unmarshal(text, &head) != nil {
		return head, notABundle("it does not begin as one")
	}
	if head.V != bundleVersion || len(head.Sets) == 0 || len(head.Sets) > len(kinds) {
		return head, notABundle("it is of another version")
	}
	for i, r := range head.Sets {
		if err := r.check(); err != nil || slices.ContainsFunc(head.Sets[:i], func(o record) bool { return o.Kind == r.Kind }) {
			return head, notABundle("what it says of its packages cannot be read")
		}
	}
	return head, nil
}

// check refuses a record that none of ours is.
func (r record) check() error {
	if _, known := kinds[r.Kind]; !known || len(r.Asked) == 0 || len(r.Lock) == 0 || sandbox.SafeText(r.Platform, 200) != r.Platform || sandbox.SafeText(r.Index, maxIndexURL) != r.Index {
		return errors.New("it is no record")
	}
	for _, text := range slices.Concat(r.Asked, r.Lock) {
		if p, err := sandbox.ParsePackage(r.Kind, text); err != nil || p.Text(r.Kind) != text {
			return cmp.Or(err, errors.New("it is no package"))
		}
	}
	return nil
}

func notABundle(why string) error {
	return &sandbox.Error{
		Code: sandbox.CodePackagesFailed, Message: "this is no bundle of packages: " + sandbox.SafeText(why, 300),
		Hint: "nothing of it is kept; pinfold packages bundle makes one",
	}
}

// forget removes what was loaded under a set's key, where it is not the same.
func (s *Store) forget(r record) error {
	was, err := s.read(loadedName, r.key())
	if err != nil || was.SHA256 == r.SHA256 && slices.Equal(was.Lock, r.Lock) {
		return nil //nolint:nilerr // what cannot be read is no set, see keep
	}
	return s.remove(r.key())
}

func (s *Store) remove(key string) error {
	err := removeUnused(filepath.Join(s.o.Dir, loadedName, key), filepath.Join(s.o.Dir, stagesName, "removed-"+loadedName+"-"+key))
	if errors.Is(err, errInUse) {
		return &sandbox.Error{Code: sandbox.CodeConflict, Message: "the packages " + key[:12] + " are in use", Hint: "end the runs and sandboxes that have them, and try again"}
	}
	if err != nil {
		return unusable(err)
	}
	return nil
}

// Loaded lists what was loaded.
func (s *Store) Loaded() []Loaded {
	all := []Loaded{}
	for _, k := range s.setsOf(loadedName) {
		all = append(all, shown(k.record))
	}
	slices.SortFunc(all, func(a, b Loaded) int { return cmp.Compare(a.Kind+a.ID, b.Kind+b.ID) })
	return all
}

// Unload removes what was loaded, by its id.
func (s *Store) Unload(id string) error {
	for _, k := range s.setsOf(loadedName) {
		if shown(k.record).ID == id {
			if err := os.MkdirAll(filepath.Join(s.o.Dir, stagesName), 0o700); err != nil {
				return unusable(err)
			}
			return s.remove(k.key)
		}
	}
	return &sandbox.Error{Code: sandbox.CodeNotFound, Message: fmt.Sprintf("no packages \"%s\" were loaded", sandbox.SafeText(id, 40)), Hint: "pinfold packages list names them"}
}

// loaded finds a set that was loaded for a platform and has all that is asked for: the
// smallest. other is a platform for which there would be one.
func (s *Store) loaded(kind, platform string, asked []string) (one set, ok bool, other string) {
	if s == nil {
		return one, false, ""
	}
	var best *known
	for _, k := range s.setsOf(loadedName) {
		switch {
		case k.record.Kind != kind || !k.record.has(asked):
		case k.record.Platform != platform:
			other = k.record.Platform
		case best == nil || len(k.record.Lock) < len(best.record.Lock) || len(k.record.Lock) == len(best.record.Lock) && k.key < best.key:
			best = &k
		}
	}
	if best == nil {
		return one, false, other
	}
	return set{record: best.record, owner: loadedName, key: best.key}, true, ""
}

// has says whether a set that was loaded has all packages of a list: those that were asked
// for when it was made, or of which one with the same version, and a digest that is asked
// for, is in it.
func (r record) has(asked []string) bool {
	return !slices.ContainsFunc(asked, func(text string) bool {
		if slices.Contains(r.Asked, text) {
			return false
		}
		want, err := sandbox.ParsePackage(r.Kind, text)
		return err != nil || want.Extras != "" || !slices.ContainsFunc(r.Lock, func(l string) bool {
			got, err := sandbox.ParsePackage(r.Kind, l)
			return err == nil && got.Version == want.Version && satisfies(r.Kind, got, want)
		})
	})
}

// loadedForOther is the error where packages were loaded for something else.
func loadedForOther(kind, platform, other string) error {
	return &sandbox.Error{
		Code: sandbox.CodePackagesFailed, Field: "packages." + kind, Message: fmt.Sprintf("these were loaded for %s, and here it is %s", sandbox.SafeText(other, 100), sandbox.SafeText(platform, 100)),
		Hint: "make the bundle on a machine with the same interpreter, or in the same template",
	}
}
