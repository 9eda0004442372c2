package profile

import (
	"maps"
	"slices"

	"pinfold/sandbox"
)

// object is an object of JSON, such as a JSON Schema.
type object = map[string]any

// input is the JSON Schema of what a tool takes: fields of a run, which stand beside
// "profile". A strict one is as OpenAI wants it: every field is required, and one that
// can be left out may be null.
func input(strict bool) object {
	optional := func(kind string, more object) object {
		s := object{"type": kind}
		if strict {
			s["type"] = []string{kind, "null"}
		}
		maps.Copy(s, more)
		return s
	}
	text := object{"type": "string"}
	file := closed(object{
		"path":    object{"type": "string", "description": "Relative to the working directory, such as data/table.csv"},
		"content": object{"type": "string", "description": "The text of the file"},
	}, "content", "path")
	fields := object{
		"code":      object{"type": "string", "description": "The program's source"},
		"stdin":     optional("string", object{"description": "What the program reads from standard input"}),
		"args":      optional("array", object{"items": text, "description": "The program's arguments"}),
		"files":     optional("array", object{"items": file, "description": "Files that are in the working directory when the program starts"}),
		"artifacts": optional("array", object{"items": text, "description": "Which of the files that the program makes to bring out, as patterns such as *.png"}),
	}
	required := []string{"code"}
	if strict {
		required = slices.Sorted(maps.Keys(fields))
	}
	return closed(fields, required...)
}

// closed is the schema of an object with these fields and no others.
func closed(fields object, required ...string) object {
	return object{"type": "object", "properties": fields, "required": required, "additionalProperties": false}
}

// output is the JSON Schema of a result, as far as tools need to know it. There is more in
// results.
func output() object {
	text, whole := object{"type": "string"}, object{"type": "integer"}
	open := func(fields object, required ...string) object {
		return object{"type": "object", "properties": fields, "required": required}
	}
	causes, statuses := []string{}, []string{}
	for _, k := range sandbox.CauseKinds() {
		causes = append(causes, string(k))
	}
	for _, s := range []sandbox.Status{sandbox.StatusSucceeded, sandbox.StatusFailed, sandbox.StatusKilled, sandbox.StatusError} {
		statuses = append(statuses, string(s))
	}
	return open(object{
		"id":        text,
		"status":    object{"type": "string", "enum": statuses},
		"exit_code": object{"type": []string{"integer", "null"}},
		"cause": open(object{
			"kind": object{"type": "string", "enum": causes}, "limit": whole, "observed": whole, "evidence": text, "hint": text,
		}, "kind"),
		"stdout":           text,
		"stderr":           text,
		"stdout_truncated": object{"type": "boolean"},
		"stderr_truncated": object{"type": "boolean"},
		"artifacts":        object{"type": "array", "items": open(object{"path": text, "size": whole, "sha256": text}, "path", "size")},
		"profile":          open(object{"name": text, "digest": text}, "digest", "name"),
	}, "artifacts", "cause", "exit_code", "id", "profile", "status", "stderr", "stdout")
}
