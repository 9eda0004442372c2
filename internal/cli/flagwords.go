package cli

import (
	"cmp"
	"encoding/json"
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
	"allowed_imports": "allow-import", "artifacts": "artifact", "mounts": "mount", "packages": packageFlag, "files": "file", "ttl_ms": "ttl", "idle_ms": "idle", "on_out_of_memory": "on-out-of-memory", "terminal": "tty",
}

// flagOf names the flag behind a field, "" where the command has none. With
// --spec, fields are what the person wrote.
func (s flagWords) flagOf(field string) string {
	if s.set == nil || s.set.Changed("spec") {
		return ""
	}
	name := s.nearFlag(field)
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

// nearFlag is the name that stands for a field among fields and flags: of the part of the
// request that it belongs to, or of a flag of its own.
func (s flagWords) nearFlag(field string) string {
	limit, isLimit := strings.CutPrefix(field, "limits.")
	part := field
	if i := strings.IndexAny(field, ".["); i >= 0 {
		part = field[:i]
	}
	switch {
	case s.command == "serve":
		return s.configFlag(field)
	case isLimit:
		return limit
	case strings.HasPrefix(field, "gate.schemas") && s.set.Changed(schemaFlag):
		return schemaFlag
	case strings.HasPrefix(field, "gate.validators") && s.set.Changed(validatorFlag):
		return validatorFlag
	case part != "network" || field == part && !s.set.Changed(allowFlag):
		return part
	case strings.HasSuffix(field, ".secret") && s.set.Changed(secretFlag):
		return secretFlag
	}
	return allowFlag
}

// configFlag is the flag of serve for a key of the configuration. What is wrong with one
// that was not given is that another one lacks it.
func (s flagWords) configFlag(key string) string {
	name, _, _ := strings.Cut(strings.ReplaceAll(key, ".", "-"), "[")
	other := map[string]string{"tls-key": "tls-cert", "tls-cert": "tls-key"}[name]
	if other != "" && !s.set.Changed(name) {
		return other
	}
	return name
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
	e := *sandbox.AsError(err)
	if flag := s.about(&e); flag != "" && !strings.HasPrefix(e.Message, "-") {
		e.Message = "--" + flag + ": " + e.Message
	}
	e.Hint = s.hint(&e)
	return &e
}

// hint says an error's hint; some that name calls of the API have sentences of
// their own.
func (s flagWords) hint(e *sandbox.Error) string {
	call, calls := e.Advice.Find(sandbox.FixCall)
	switch {
	case e.Code == sandbox.CodeUnauthorized:
		return "export " + client.KeyEnv + "=$(pinfold key create --state DIR), where DIR is the server's state directory"
	case calls && e.Code == sandbox.CodeGone:
		return "what was in it is gone with it; pinfold ls --all says why it ended, pinfold create makes another"
	case calls && e.Code == sandbox.CodeNotFound:
		return s.lists(call.Name)
	}
	return s.say(e.Hint, e.Advice)
}

// lists are the commands that list what a command is about: a server that has no
// such object, but for pools, does not say what of.
func (s flagWords) lists(call string) string {
	switch {
	case call == sandbox.CallListPools:
		return "pinfold pool ls lists them"
	case call == sandbox.CallListSnapshots:
		return "pinfold snapshot ls lists them"
	case slices.Contains([]string{"runs", "result", "cancel", "replay"}, s.command):
		return "pinfold runs lists the runs that the server still has"
	}
	return "pinfold ls --all lists the sandboxes, pinfold ps SANDBOX the processes"
}

// result says what is for people in a result in the words of the command line.
func (s flagWords) result(r *sandbox.Result) *sandbox.Result {
	c := *r
	c.Cause = s.cause(c.Cause)
	if c.Error != nil {
		c.Error = s.translate(c.Error)
	}
	c.Network = s.network(c.Network)
	c.Isolation.NotEnforced = slices.Clone(c.Isolation.NotEnforced)
	for i, gap := range c.Isolation.NotEnforced {
		c.Isolation.NotEnforced[i].Fix = s.say(gap.Fix, gap.Advice)
	}
	return &c
}

// process is result for a process of a living sandbox.
func (s flagWords) process(p sandbox.Process) sandbox.Process {
	if p.Cause != nil {
		c := s.cause(*p.Cause)
		p.Cause = &c
	}
	return p
}

// cause says what to change. Of a limit that was met that is the flag alone: its line
// has said the rest.
func (s flagWords) cause(c sandbox.Cause) sandbox.Cause {
	c.Hint = s.say(c.Hint, c.Advice)
	met, _ := limitOf(c.Kind)
	more, ok := c.Advice.Find(sandbox.FixSet)
	limit, limits := strings.CutPrefix(more.Name, "limits.")
	_, operators := c.Advice.Find(sandbox.FixConfig) // and nobody else's to change
	if another := limits && limit != met.Field; ok && c.Limit > 0 && !another && !operators {
		c.Hint = s.words(more)
	}
	return c
}

// say says an advice in flags; where it has no data, or a fix of a kind that this
// program does not know, as others have said it.
func (s flagWords) say(hint string, a sandbox.Advice) string {
	return cmp.Or(a.Say(s.words), hint)
}

// words are the flags for one fix, those of JSON where the command has none.
func (s flagWords) words(f sandbox.Fix) string {
	flag := s.flagOf(f.Name)
	switch {
	case f.Kind == sandbox.FixCall:
		return strings.Replace(callWords[f.Name], anySandbox, s.sandbox(), 1)
	case f.Kind == sandbox.FixCopy && slices.Contains(inSandboxes, s.command):
		return "pinfold cp " + shellQuote(f.Name) + " " + s.sandbox() + ":"
	case f.Kind == sandbox.FixCopy && s.flagOf("files") != "":
		return "--" + s.flagOf("files") + " " + shellQuote(f.Name)
	case f.Kind == sandbox.FixConfig && flag != "" && !strings.Contains(f.Name, "."): // a key below another is no flag's
		return "--" + flag
	case f.Kind == sandbox.FixOmit && flag != "":
		return "leave --" + flag + " out"
	case f.Kind == sandbox.FixSet && flag != "":
		return setFlag(s.set.Lookup(flag).Value.Type(), flag, f)
	case f.Kind == sandbox.FixSet && slices.Contains(inSandboxes, s.command):
		other := (&app{}).execCommand()
		if strings.HasPrefix(f.Name, "limits.") || slices.Contains(ofSandboxes, f.Name) {
			other = (&app{}).createCommand()
		}
		return "pinfold " + other.Name() + " " + flagWords{set: other.Flags()}.words(f)
	}
	return f.JSON()
}

// callWords are the commands behind calls of the API.
var callWords = map[string]string{
	sandbox.CallCreateSandbox: "pinfold create", sandbox.CallListPools: "pinfold pool ls",
	sandbox.CallListRuns: "pinfold runs", sandbox.CallListSandboxes: "pinfold ls --all", sandbox.CallListSnapshots: "pinfold snapshot ls", sandbox.CallResumeSandbox: "pinfold resume " + anySandbox,
}

// anySandbox stands in hints for the id of a sandbox that is not known.
const anySandbox = "SANDBOX"

// sandbox is the id of the one sandbox that the command is about, or the word for any.
func (s flagWords) sandbox() string {
	if s.set == nil {
		return anySandbox
	}
	args, found := s.set.Args(), anySandbox
	if s.command == "exec" { // what follows the sandbox is the command's
		args = args[:min(len(args), 1)]
	}
	for _, arg := range args {
		id, _, _ := strings.Cut(arg, ":")
		switch {
		case kindOfID(id) != "sbx" || id == found:
		case found != anySandbox:
			return anySandbox
		default:
			found = id
		}
	}
	return found
}

// inSandboxes are the commands about a sandbox that is there, whose driver, limits and files
// are its own.
var inSandboxes = []string{"exec", "cp", "logs", "snapshot", "fork"}

// ofSandboxes are fields that a sandbox has, and no command in it.
var ofSandboxes = []string{"ttl_ms", "idle_ms", "network", "driver"}

// setFlag is the flag that gives a field its value.
func setFlag(kind, flag string, f sandbox.Fix) string {
	if f.Name == "network" {
		return allowFlags(f)
	}
	if kind == "bool" {
		return "--" + flag
	}
	var word string
	var list []string
	var pairs map[string]string
	var number float64
	switch {
	case json.Unmarshal(f.Value, &word) == nil:
	case json.Unmarshal(f.Value, &list) == nil:
		word = strings.Join(list, ",")
	case json.Unmarshal(f.Value, &pairs) == nil:
		for k, v := range pairs { // one, in hints
			word = k + "=" + v
		}
	case json.Unmarshal(f.Value, &number) == nil:
		word = quantity(f.Name, string(f.Value), int64(number))
	default:
		return f.JSON()
	}
	return "--" + flag + " " + shellQuote(word)
}

// quantity is a number in the form that people type.
func quantity(field, raw string, v int64) string {
	switch {
	case strings.HasSuffix(field, "_ms"):
		return sandbox.FormatQuantity(v, sandbox.UnitMilliseconds)
	case strings.HasSuffix(field, "_bytes"):
		return sandbox.FormatSize(v)
	}
	return raw
}
