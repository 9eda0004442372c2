package cli

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"pinfold/sandbox"
)

// afterDashes is said wherever a program's arguments stand among our own.
const afterDashes = "arguments of the program go after --"

// typed is a command line as it was typed, sorted into what each word is.
type typed struct {
	words   []string
	plain   []int // the words that are neither flags nor their values, without the command's own name
	unknown int   // the first flag that there is not, or -1
	dash    int   // where "--" stands, or len(words)
}

// sortWords finds out which words are flags, which are their values and which
// stand for themselves. The command has one word.
func sortWords(set *pflag.FlagSet, words []string) typed {
	t := typed{words: words, unknown: -1, dash: len(words)}
	for i := 0; i < len(words) && t.dash == len(words); i++ {
		word := words[i]
		switch {
		case word == "--":
			t.dash = i
		case len(word) < 2 || word[0] != '-':
			t.plain = append(t.plain, i)
		default:
			known, takesNext := lookFlag(set, word)
			if !known && t.unknown < 0 {
				t.unknown = i
			}
			if takesNext {
				i++
			}
		}
	}
	if len(t.plain) > 0 {
		t.plain = t.plain[1:]
	}
	return t
}

// lookFlag says whether there is such a flag, and whether the next word is its
// value.
func lookFlag(set *pflag.FlagSet, word string) (known, takesNext bool) {
	if long, ok := strings.CutPrefix(word, "--"); ok {
		name, _, hasValue := strings.Cut(long, "=")
		f := set.Lookup(name)
		return f != nil, f != nil && !hasValue && f.NoOptDefVal == ""
	}
	for i := 1; i < len(word); i++ {
		f := set.ShorthandLookup(word[i : i+1])
		if f == nil {
			return false, false
		}
		if f.NoOptDefVal == "" { // the rest of the word is its value
			return true, i == len(word)-1
		}
	}
	return true, false
}

// strayHint is what to type instead when several words look like programs: the
// first is the program and the others are its arguments. Where that is not
// likely, because the first is no file and a later one is, nothing is guessed.
func (t typed) strayHint() string {
	if len(t.plain) < 2 || (!isProgram(t.words[t.plain[0]]) && t.anyProgram()) {
		return "pinfold run [flags] FILE -- ARGS; a flag takes one word: --require memory,seccomp"
	}
	stray := map[int]bool{}
	args := []string{"--"}
	for _, i := range t.plain[1:] {
		stray[i] = true
		args = append(args, t.words[i])
	}
	command := []string{"pinfold"}
	for i, word := range t.words[:t.dash] {
		if !stray[i] {
			command = append(command, word)
		}
	}
	if t.dash < len(t.words) {
		args = append(args, t.words[t.dash+1:]...)
	}
	return pasteable("pinfold run [flags] FILE -- ARGS", append(command, args...))
}

// unknownHint is what to type instead when an unknown flag follows the program:
// it is probably the program's. Without a program before it, it is "".
func (t typed) unknownHint() string {
	if t.unknown < 0 || len(t.plain) == 0 || t.plain[0] > t.unknown {
		return ""
	}
	command := append([]string{"pinfold"}, t.words[:t.unknown]...)
	command = append(append(command, "--"), t.words[t.unknown:t.dash]...)
	if t.dash < len(t.words) {
		command = append(command, t.words[t.dash+1:]...)
	}
	return pasteable("pinfold run [flags] FILE -- ARGS", command)
}

func (t typed) anyProgram() bool {
	return slices.ContainsFunc(t.plain, func(i int) bool { return isProgram(t.words[i]) })
}

func isProgram(name string) bool { return name == fromStdin || looksLikeFile(name) }

// pasteable writes words as a command for a shell. Words that cannot be shown
// whole, because they are long or not printable, give the general form.
func pasteable(general string, words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellQuote(w)
	}
	line := strings.Join(quoted, " ")
	if sandbox.SafeText(line, maxMessage/2) != line {
		return general
	}
	return line
}

// plainWord has the characters that mean nothing to any shell.
const plainWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"

// shellQuote writes a word so that a shell reads it as it is.
func shellQuote(word string) string {
	if word != "" && strings.Trim(word, plainWord) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
