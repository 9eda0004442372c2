package bench

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// Options say what is measured. Program must be set; New and AgentSize where
// the driver is to be measured by itself.
type Options struct {
	Program string // the pinfold executable that is measured
	Version string // its version, for the report

	Rounds      int           // how often each contender takes its turn; 0: chosen by Quick and Long
	Quick       bool          // look whether it works; the numbers are coarse
	Long        bool          // a minute of throughput, ten thousand sandboxes
	Only        []string      // parts; none: all
	Without     []string      // contenders that are not measured
	Concurrency int           // requests at a time for throughput; 0: 4
	Duration    time.Duration // of each contender's throughput; 0: 10 s

	Server string // measure this server instead of one of our own
	Key    string // its API key

	GoJudge string // base URL of a go-judge
	E2B     string // base URL of an E2B-compatible control plane
	E2BKey  string

	// NewDriver makes the driver that is measured in this process, and
	// AgentSize says how many bytes the agent has that it starts.
	NewDriver func() (driver.Driver, error)
	AgentSize func() (int64, error)

	// Progress, when set, is told what is being measured, and Section is handed
	// each section as it is done. Both are called from the goroutine of Run.
	Progress func(string)
	Section  func(*Section)

	// Transport carries the requests to GoJudge and E2B; nil means a new one.
	Transport http.RoundTripper
}

// part is one thing that is measured.
type part struct {
	name    string
	meaning string
	peers   bool // it needs the contenders and the server
	measure func(*session) error
}

// parts in the order in which they are measured.
func parts() []part {
	return []part{
		{"latency", "one program after another: median, p95, p99", true, (*session).latency},
		{"exec", "a command in a sandbox that lives", true, (*session).exec},
		{"throughput", "programs a second, several at a time", true, (*session).throughput},
		{"burst", "a hundred programs at once", true, (*session).burst},
		{"density", "1 to 1,000 living sandboxes: memory, and what growth costs", true, (*session).density},
		{"neighbours", "runs while another sandbox works at its limits", true, (*session).neighbours},
		{"transfer", "files up and down, output", true, (*session).transfer},
		{"network", "declared endpoints: requests, streams, memory, unused", false, (*session).network},
		{"driver", "the native driver alone, in process", false, (*session).driverAlone},
		{"endurance", "many sandboxes made and destroyed", false, (*session).endurance},
	}
}

// Parts lists the names that Options.Only takes, each with what it measures.
func Parts() (names, meanings []string) {
	for _, p := range parts() {
		names, meanings = append(names, p.name), append(meanings, p.meaning)
	}
	return names, meanings
}

// withDefaults fills in what was not given.
func (o Options) withDefaults() Options {
	def := func(quick, usual, long int) int {
		switch {
		case o.Quick:
			return quick
		case o.Long:
			return long
		}
		return usual
	}
	o.Rounds = cmp.Or(o.Rounds, def(5, 40, 100))
	o.Concurrency = cmp.Or(o.Concurrency, 4)
	o.Duration = cmp.Or(o.Duration, time.Duration(def(1, 10, 60))*time.Second)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Section == nil {
		o.Section = func(*Section) {}
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{MaxIdleConnsPerHost: burstSize, ForceAttemptHTTP2: true}
	}
	return o
}

// Peers lists the contenders of this machine, as Options.Without takes them.
func Peers() []string {
	names := []string{"bubblewrap", "docker"}
	for _, r := range ociRuntimes() {
		names = append(names, r.name)
	}
	return names
}

// Bounds on what may be asked for.
const (
	maxRounds      = 100_000
	maxConcurrency = 1000
	maxDuration    = time.Hour
)

// Validate says what is wrong with the options. The errors are of code
// spec_invalid and name the flag.
func (o Options) Validate() error {
	switch {
	case o.Quick && o.Long:
		return invalid("quick", "--quick and --long exclude each other")
	case o.Rounds < 0 || o.Rounds > maxRounds:
		return invalid("rounds", "--rounds takes 1 to %d", maxRounds)
	case o.Concurrency < 0 || o.Concurrency > maxConcurrency:
		return invalid("concurrency", "--concurrency takes 1 to %d", maxConcurrency)
	case o.Duration < 0 || o.Duration > maxDuration:
		return invalid("duration", "--duration takes up to %v", maxDuration)
	}
	for flag, address := range map[string]string{"go-judge": o.GoJudge, "e2b": o.E2B} {
		if u, err := url.Parse(address); address != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			return invalid(flag, "--%s takes a URL such as http://127.0.0.1:5050", flag)
		}
	}
	names, _ := Parts()
	if err := oneOf("only", "part", o.Only, names); err != nil {
		return err
	}
	return oneOf("without", "contender", o.Without, Peers())
}

// oneOf says which of the words is none of the names.
func oneOf(flag, what string, words, names []string) error {
	for _, word := range words {
		if slices.Contains(names, word) {
			continue
		}
		e := invalid(flag, "--%s: there is no %s \"%s\"", flag, what, sandbox.SafeText(word, 40))
		if near := nearest.Word(word, names); near != "" {
			return e.WithHint("did you mean " + near + "?")
		}
		return e.WithHint(fmt.Sprintf("each %s: %s", what, strings.Join(names, ", ")))
	}
	return nil
}

func invalid(field, format string, args ...any) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}
