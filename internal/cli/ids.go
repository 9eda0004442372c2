package cli

import (
	"fmt"
	"strings"

	"pinfold/sandbox"
)

const (
	idLetters = "abcdefghijklmnopqrstuvwxyz234567"
	idLength  = 26
)

// ids are the kinds of ids by their beginnings: what they are of, and what lists them.
var ids = map[string]struct{ what, lists string }{
	"sbx": {"sandbox", "pinfold ls lists the sandboxes"},
	"prc": {"process", "pinfold ps SANDBOX lists the processes"},
	"run": {"run", "pinfold runs lists the runs"},
	"snp": {"snapshot", "pinfold snapshot ls lists the snapshots"},
}

// kindOfID is the beginning of a word that looks like an id, "" of any other word.
func kindOfID(word string) string {
	kind, rest, _ := strings.Cut(word, "_")
	if ids[kind].what == "" || len(rest) != idLength || strings.Trim(rest, idLetters) != "" {
		return ""
	}
	return kind
}

// isID says whether a word looks like the id of a sandbox, a process or a run.
func isID(word string) bool { return kindOfID(word) != "" }

// checkIDs says which of the words cannot be ids of a kind, before a server is asked.
func (a *app) checkIDs(kind string, words ...string) error {
	for _, word := range words {
		is := kindOfID(word)
		if is == kind {
			continue
		}
		e := &sandbox.Error{Code: sandbox.CodeNotFound, Hint: ids[kind].lists}
		e.Message = fmt.Sprintf("\"%s\" is not the id of a %s", sandbox.SafeText(word, maxID), ids[kind].what)
		if is != "" {
			e.Message = fmt.Sprintf("%s is the id of a %s, not of a %s", word, ids[is].what, ids[kind].what)
		}
		if meant := meantWith[a.speech.command+" "+is]; meant != "" {
			e.Hint = meant + word
		}
		return e
	}
	return nil
}

// meantWith are the commands that somebody means who gives a command the id of another kind,
// which follows.
var meantWith = map[string]string{
	"kill prc": "pinfold kill SANDBOX ", "kill run": "pinfold cancel ", "kill snp": "pinfold snapshot rm ",
	"logs prc": "pinfold logs SANDBOX ", "logs run": "pinfold result ",
	"cancel sbx": "pinfold kill ", "cancel prc": "pinfold kill SANDBOX ",
	"result sbx": "pinfold logs ", "result prc": "pinfold logs SANDBOX ",
	"runs sbx": "pinfold logs --follow ", "runs prc": "pinfold logs --follow SANDBOX ",
}
