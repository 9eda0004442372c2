package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pinfold/sandbox"
)

// Original is the run that is repeated.
type Original struct {
	Result *sandbox.Result
	// MadeWith is what it ran with besides its isolation, by name: "template", "pinfold",
	// "gate", "packages".
	MadeWith map[string]string
	Secrets  []string // that it could use, by name
}

const maxWord = 300 // runes of what was and is

// comparison collects what differs.
type comparison struct{ all []sandbox.Difference }

func (c *comparison) add(d sandbox.Difference) {
	if len(c.all) < sandbox.MaxDifferences {
		d.Path, d.Was, d.Is = sandbox.SafeText(d.Path, sandbox.MaxPathBytes), sandbox.SafeText(d.Was, maxWord), sandbox.SafeText(d.Is, maxWord)
		c.all = append(c.all, d)
		return
	}
	c.all[len(c.all)-1] = sandbox.Difference{What: "more"}
}

func (c *comparison) word(what, was, is string) {
	if was != is {
		c.add(sandbox.Difference{What: what, Was: cmp.Or(was, "none"), Is: cmp.Or(is, "none")})
	}
}

// Compare says how a run that was made with what differs from the one that it repeats.
func Compare(was Original, is *sandbox.Result, with map[string]string) *sandbox.Replay {
	r := &sandbox.Replay{Of: was.Result.ID, Environment: environment(was, is, with), Secrets: was.Secrets, Differences: outcome(was.Result, is)}
	r.Same = len(r.Differences) == 0
	return r
}

func environment(was Original, is *sandbox.Result, with map[string]string) []sandbox.Difference {
	c := &comparison{}
	for _, name := range []string{"template", "pinfold", "gate", "packages"} {
		c.word(name, was.MadeWith[name], with[name])
	}
	c.word("driver", was.Result.Isolation.Driver, is.Isolation.Driver)
	c.word("isolation", only(was.Result.Isolation.Enforced, is.Isolation.Enforced), only(is.Isolation.Enforced, was.Result.Isolation.Enforced))
	return c.all
}

// only is what is enforced in the one and not in the other.
func only(all, other []string) string {
	var own []string
	for _, s := range all {
		if !slices.Contains(other, s) {
			own = append(own, s)
		}
	}
	return strings.Join(own, ", ")
}

func outcome(was, is *sandbox.Result) []sandbox.Difference {
	c := &comparison{all: []sandbox.Difference{}}
	c.word("status", string(was.Status), string(is.Status))
	c.word("cause", cause(was.Cause), cause(is.Cause))
	c.word("exit_code", number(was.ExitCode), number(is.ExitCode))
	c.word("signal", was.Signal, is.Signal)
	c.word("error", code(was.Error), code(is.Error))
	c.word("gate", gate(was.Gate), gate(is.Gate))
	a, b := compiled(was), compiled(is)
	c.output("compile.stdout", stream{text: a.Stdout}, stream{text: b.Stdout})
	c.output("compile.stderr", stream{text: a.Stderr}, stream{text: b.Stderr})
	c.output("stdout", stream{was.Stdout, was.StdoutRaw, was.StdoutBytes}, stream{is.Stdout, is.StdoutRaw, is.StdoutBytes})
	c.output("stderr", stream{was.Stderr, was.StderrRaw, was.StderrBytes}, stream{is.Stderr, is.StderrRaw, is.StderrBytes})
	c.output("results", stream{text: values(was.Results)}, stream{text: values(is.Results)})
	c.artifacts(was, is)
	return c.all
}

// cause is why a run ended, without what was measured.
func cause(c sandbox.Cause) string {
	words := []string{string(c.Kind)}
	if c.Limit != 0 {
		words = append(words, "at "+strconv.FormatInt(c.Limit, 10))
	}
	if c.Syscall != "" {
		words = append(words, c.Syscall)
	}
	if c.Phase != "" {
		words = append(words, "in "+string(c.Phase))
	}
	return strings.Join(words, " ")
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func code(e *sandbox.Error) string {
	if e == nil {
		return ""
	}
	return e.Code
}

func gate(g *sandbox.GateResult) string {
	if g == nil {
		return ""
	}
	return string(g.Outcome)
}

func compiled(r *sandbox.Result) sandbox.Compile {
	if r.Compile == nil {
		return sandbox.Compile{}
	}
	return *r.Compile
}

// values are rich values as text, line by line.
func values(all []sandbox.Rich) string {
	if len(all) == 0 {
		return ""
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil { // they come from JSON
		return ""
	}
	return string(b) + "\n"
}

// stream is what is kept of an output.
type stream struct {
	text  string
	raw   []byte // where it is known
	total int64  // bytes that were written, also beyond what is kept; 0: what is kept
}

func (c *comparison) output(what string, was, is stream) {
	a, b := []byte(was.text), []byte(is.text)
	if was.raw != nil && is.raw != nil {
		a, b = was.raw, is.raw
	}
	same := bytes.Equal(a, b)
	if same && was.total == is.total {
		return
	}
	d := sandbox.Difference{What: what, Was: size(a, was.total), Is: size(b, is.total), At: int64(common(a, b))}
	if !same {
		d.Diff = diff(a, b)
	}
	c.add(d)
}

func size(kept []byte, total int64) string {
	return fmt.Sprintf("%d bytes", max(total, int64(len(kept))))
}

// common is how many bytes both begin with.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func (c *comparison) artifacts(was, is *sandbox.Result) {
	c.byPath("artifact", files(was.Artifacts), files(is.Artifacts))
	c.byPath("artifact_skipped", skipped(was.ArtifactsSkipped), skipped(is.ArtifactsSkipped))
}

func files(all []sandbox.Artifact) map[string]string {
	by := make(map[string]string, len(all))
	for _, a := range all {
		by[a.Path] = fmt.Sprintf("%d bytes, sha256 %s", a.Size, a.SHA256)
	}
	return by
}

func skipped(all []sandbox.SkippedArtifact) map[string]string {
	by := make(map[string]string, len(all))
	for _, a := range all {
		by[a.Path] = a.Code
	}
	return by
}

func (c *comparison) byPath(what string, was, is map[string]string) {
	paths := make([]string, 0, len(was)+len(is))
	for _, of := range []map[string]string{was, is} {
		for path := range of {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if was[path] != is[path] {
			c.add(sandbox.Difference{What: what, Path: path, Was: cmp.Or(was[path], "none"), Is: cmp.Or(is[path], "none")})
		}
	}
}
