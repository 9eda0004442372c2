package cli

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"pinfold/client"
	"pinfold/sandbox"
)

// What the engine and a server say speaks of fields of requests, as they are
// written in JSON. This file is the one place that says it in the words of the
// command line: flags and commands.

// flagWords knows the flags of one command, and its name.
type flagWords struct {
	set     *pflag.FlagSet
	command string
}

// flags are those behind fields that have other names; the limits' are in their
// table.
var flags = map[string]string{
	"allowed_imports": "allow-import", "artifacts": "artifact", "mounts": "mount", "files": "file", "ttl_ms": "ttl", "idle_ms": "idle", "on_out_of_memory": "on-out-of-memory",
}

// flagOf names the flag behind a field, "" where the command has none. With
// --spec, fields are what the person wrote.
func (s flagWords) flagOf(field string) string {
	if s.set == nil || s.set.Changed("spec") {
		return ""
	}
	name := field
	if limit, ok := strings.CutPrefix(field, "limits."); ok {
		name = limit
	} else if i := strings.IndexAny(field, ".["); i >= 0 {
		name = field[:i]
	}
	for _, info := range sandbox.LimitTable() {
		if info.Field == name {
			name = info.Flag
		}
	}
	if flag, ok := flags[name]; ok {
		name = flag
	}
	if flag := s.set.Lookup(name); flag != nil {
		return flag.Name // some have another name besides
	}
	return ""
}

// about names the flag that an error is about: one that was given, or that of a
// limit, which may be a default that does not fit the rest.
func (s flagWords) about(e *sandbox.Error) string {
	flag := s.flagOf(e.Field)
	if flag == "" || !s.set.Changed(flag) && !strings.HasPrefix(e.Field, "limits.") {
		return ""
	}
	return flag
}

// translate says an error in the words of the command line.
func (s flagWords) translate(err error) *sandbox.Error {
	e := *sandbox.AsError(s.inFlagWords(err))
	if flag := s.about(&e); flag != "" && !strings.HasPrefix(e.Message, "-") {
		e.Message = "--" + flag + ": " + e.Message
	}
	e.Hint = s.text(e.Hint)
	return &e
}

// result says what is for people in a result in the words of the command line.
func (s flagWords) result(r *sandbox.Result) *sandbox.Result {
	c := *r
	c.ColdBecause, c.Cause.Hint = s.text(c.ColdBecause), s.text(c.Cause.Hint)
	if c.Error != nil {
		c.Error = s.translate(c.Error)
	}
	c.Isolation.NotEnforced = slices.Clone(c.Isolation.NotEnforced)
	for i := range c.Isolation.NotEnforced {
		c.Isolation.NotEnforced[i].Fix = s.text(c.Isolation.NotEnforced[i].Fix)
	}
	return &c
}

// members are parts of a request, as hints have them: "cold": true, or
// "limits": {"memory_bytes": 67108864}; and limits that are only named.
var (
	members    = regexp.MustCompile(`"([a-z_]+)": (\{[^{}]*\}|\[[^][]*\]|"[^"\\]*"|true|[0-9.]+)`)
	limitNames = regexp.MustCompile(`\blimits\.([a-z_]+)`)
)

// text puts flags in the place of members of a request, where the command has
// them.
func (s flagWords) text(text string) string {
	if s.set == nil {
		return text
	}
	text = members.ReplaceAllStringFunc(text, func(member string) string {
		m := members.FindStringSubmatch(member)
		if words := s.words(m[1], json.RawMessage(m[2])); words != "" {
			return words
		}
		return member
	})
	return limitNames.ReplaceAllStringFunc(text, func(name string) string {
		if flag := s.flagOf(name); flag != "" {
			return "--" + flag
		}
		return name
	})
}

// words are the flags for one member, "" where there are none.
func (s flagWords) words(name string, value json.RawMessage) string {
	if name == "limits" {
		var limits map[string]json.RawMessage
		if json.Unmarshal(value, &limits) != nil || len(limits) != 1 {
			return ""
		}
		for limit, n := range limits {
			return s.words("limits."+limit, n)
		}
	}
	flag, before := s.flagOf(name), ""
	if flag == "" {
		if flag = s.ofCreate(name); flag == "" {
			return ""
		}
		before = "pinfold create "
	}
	var v any
	if json.Unmarshal(value, &v) != nil {
		return ""
	}
	var word string
	switch v := v.(type) {
	case bool:
		return before + "--" + flag
	case string:
		word = v
	case []any:
		var all []string
		for _, item := range v {
			text, _ := item.(string)
			all = append(all, text)
		}
		word = strings.Join(all, ",")
	case float64:
		word = quantity(name, value, int64(v))
	default:
		return ""
	}
	return before + "--" + flag + " " + shellQuote(word)
}

// inSandboxes are the commands whose limits are those of the sandbox, which it got when
// it was made.
var inSandboxes = []string{"exec", "cp"}

// ofCreate is the flag of "create" behind a limit, for these commands.
func (s flagWords) ofCreate(field string) string {
	limit, ok := strings.CutPrefix(field, "limits.")
	if !ok || !slices.Contains(inSandboxes, s.command) {
		return ""
	}
	for _, info := range sandbox.LimitTable() {
		if info.Field == limit {
			return info.Flag
		}
	}
	return ""
}

// quantity is a number in the form that people type.
func quantity(field string, raw json.RawMessage, v int64) string {
	switch {
	case strings.HasSuffix(field, "_ms"):
		return sandbox.FormatQuantity(v, sandbox.UnitMilliseconds)
	case strings.HasSuffix(field, "_bytes"):
		return sandbox.FormatSize(v)
	}
	return string(raw)
}

// hintCreate is what a server says to whoever asks for a sandbox that has ended.
const hintCreate = "create another one"

// ofRuns are the commands that take ids of runs. A server that has no such object
// does not say what of.
var ofRuns = []string{"runs", "result", "cancel"}

// inFlagWords replaces hints that speak of HTTP by commands.
func (s flagWords) inFlagWords(err error) error {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Code == sandbox.CodeNotFound && strings.Contains(e.Hint, "GET /v1/pools"):
		return e.WithHint("pinfold pool ls lists them")
	case e.Code == sandbox.CodeNotFound && strings.Contains(e.Hint, "GET /"):
		if slices.Contains(ofRuns, s.command) {
			return e.WithHint("pinfold runs lists the runs that the server still has")
		}
		return e.WithHint("pinfold ls --all lists the sandboxes, pinfold ps SANDBOX the processes")
	case e.Code == sandbox.CodeGone && e.Hint == hintCreate:
		return e.WithHint("what was in it is gone with it; pinfold ls --all says why it ended, pinfold create makes another")
	case e.Code == sandbox.CodeUnauthorized:
		return e.WithHint("export " + client.KeyEnv + "=$(pinfold key create --state DIR), where DIR is the server's state directory")
	}
	return err
}
