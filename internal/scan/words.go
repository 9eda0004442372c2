package scan

import (
	"strings"
	"unicode"
)

// Words that readWords finds.
const (
	wordInjection  = "injection"
	wordCredential = "credential"
	wordHidden     = "hidden"
)

const maxWords = 2000 // of the facts

// injections are sentences that talk to a model, in lower case. Words of them may be
// separated by any white space.
var injections = []string{
	"ignore all previous instructions", "ignore previous instructions", "ignore the previous instructions", "ignore all prior instructions",
	"ignore your previous instructions", "ignore the above instructions", "disregard all previous", "disregard previous instructions", "disregard your instructions",
	"disregard the above", "forget your instructions", "forget all previous", "forget everything above", "override your instructions",
	"new system prompt", "reveal your system prompt", "print your system prompt", "do not tell the user", "don't tell the user", "without telling the user",
	"do not mention this to the user", "you are now in developer mode", "you are no longer bound", "act as an unrestricted", "<|im_start|>", "<|system|>", "[/inst]",
	"assistant, you must", "ai assistant: you must", "as an ai agent, you must", "note to the ai", "attention ai", "instructions for the ai",
}

// tokens are how well-known credentials begin, and how many characters of the kind
// follow at least.
var tokens = []struct {
	begin string
	more  int
}{
	{"AKIA", 16},
	{"ASIA", 16},
	{"ghp_", 30},
	{"gho_", 30},
	{"ghs_", 30},
	{"github_pat_", 40},
	{"glpat-", 18},
	{"xoxb-", 20},
	{"xoxp-", 20},
	{"sk-proj-", 20},
	{"sk-ant-", 20},
	{"sk_live_", 20},
	{"rk_live_", 20},
	{"sk-", 40},
	{"AIza", 30},
	{"npm_", 34},
	{"pypi-", 50},
	{"SG.", 40},
	{"hf_", 30},
	{"dop_v1_", 40},
	{"eyJhbGciOi", 60},
}

// readWords looks at the words of the source, comments included, whatever its language.
func (p *program) readWords() {
	text := string(p.source.Text)
	p.wordsOf(text)
	for i := 0; i+len("-----BEGIN ") < len(text); {
		n := strings.Index(text[i:], "-----BEGIN ")
		if n < 0 {
			break
		}
		i += n + len("-----BEGIN ")
		if head, _, ok := strings.Cut(text[i:min(len(text), i+60)], "-----"); ok && strings.HasSuffix(head, "PRIVATE KEY") {
			p.word(wordCredential, i)
		}
	}
	for _, t := range tokens {
		p.credentials(text, t.begin, t.more)
	}
	for i, r := range text {
		if hides(r) {
			p.word(wordHidden, i)
		}
	}
}

func (p *program) word(name string, offset int) {
	line, column := p.position(offset)
	if n := len(p.facts); n > 0 && p.facts[n-1].kind == kindWord && p.facts[n-1].name == name && p.facts[n-1].line == line {
		return // once a line is enough
	}
	if len(p.facts) >= maxWords {
		p.full = true
		return
	}
	p.add(fact{kind: kindWord, line: line, column: column, name: name})
}

// wordsOf finds sentences. It compares words, so that line ends, the signs of comments
// and a second space hide nothing.
func (p *program) wordsOf(text string) {
	var b strings.Builder
	offsets := make([]int, 0, len(text))
	space := true
	put := func(s string, at int) {
		for range len(s) {
			offsets = append(offsets, at)
		}
		b.WriteString(s)
	}
	for i, r := range text {
		switch {
		case unicode.IsSpace(r) || r == '#' || r == '*' || r == '"' || r == '\\':
			if !space {
				put(" ", i)
			}
			space = true
		default:
			put(string(unicode.ToLower(r)), i)
			space = false
		}
	}
	plain := b.String()
	for _, sentence := range injections {
		for from := 0; ; {
			n := strings.Index(plain[from:], sentence)
			if n < 0 {
				break
			}
			p.word(wordInjection, offsets[from+n])
			from += n + len(sentence)
		}
	}
}

func (p *program) credentials(text, begin string, more int) {
	for from := 0; ; {
		n := strings.Index(text[from:], begin)
		if n < 0 {
			return
		}
		at := from + n
		from = at + len(begin)
		rest := text[from:min(len(text), from+200)]
		length := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && r != '-' && r != '.' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
		})
		if length < 0 {
			length = len(rest)
		}
		alone := at == 0 || !isNameByte(text[at-1])
		if alone && length >= more && varied(rest[:length]) {
			p.word(wordCredential, at)
		}
	}
}

// varied says whether a text has many different characters, as what is random has, and
// placeholders (xxxx) have not.
func varied(s string) bool {
	var seen [128]bool
	n := 0
	for i := range len(s) {
		if c := s[i]; c < 128 && !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n >= 8
}

// hides says whether a character makes source look other than it is: overrides of the
// direction, tags that nobody sees. Marks that honest texts have are not among them.
func hides(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r >= 0xe0020 && r <= 0xe007f
}
