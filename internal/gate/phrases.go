package gate

import (
	"bytes"
	"regexp"
	"slices"
)

const whatPhrase = "sentence that talks to a model"

// phraseBytes bounds how much of a text one phrase may take.
const phraseBytes = 120

// phrases are sentences that talk to a model that reads the output, as far as there are
// usual ones: a beginning, in any case of letters, and what has to follow.
func phrases() []anchor {
	const (
		some   = `(?:[\w'’]+[\s,]+){0,4}?`
		before = `(?:previous|prior|above|earlier|preceding|system|original|existing|foregoing)`
		what   = `(?:instructions?|prompts?|rules|directions|directives|guidelines|messages?|context|commands?|constraints)`
		model  = `(?:ai|a\.i\.|assistant|agent|llm|language model|large language model|model|chatbot|claude|chatgpt|gpt|copilot)`
	)
	drop := `\s+` + some + `(?:` + before + `\s+(?:\w+\s+){0,2}?` + what + `|all\s+` + what + `|(?:your|my|the)\s+` + what + `|(?:everything|all)\s+(?:above|before|so far|you were told)|(?:what|everything)\s+you\s+(?:were|have been)\s+told)\b`
	var all []anchor
	for _, start := range []string{"ignore", "disregard", "forget", "override", "bypass"} {
		all = append(all, phrase(start, drop, hasEnd))
	}
	for start, rest := range map[string]string{
		"you are now ":          `(?:an?|in|the|my|no longer|free)\b`,
		"from now on":           `,?\s+(?:you|act|respond|answer|always|never)\b`,
		"new instructions":      `\s*:|\s+(?:from|for you)\b`,
		"new system prompt":     ``,
		"your new instructions": ``, "your new task is": ``, "your real task is": ``,
		"system prompt": `\s*:`,
		"if you are a":  `n?\s+` + model + `\b`,
		"as an ai ":     `(?:\w+\s+)?,?\s*you\s+(?:must|should|have to|will)\b`,
		"note to ":      `(?:the\s+|any\s+)?` + model + `\b`, "attention ": `(?:the\s+|any\s+)?` + model + `\b`,
		"instructions for ": `(?:the\s+|any\s+)?` + model + `\b`, "instruction for ": `(?:the\s+|any\s+)?` + model + `\b`,
		"do not tell the user": ``, "don't tell the user": ``, "do not inform the user": ``, "without telling the user": ``, "do not mention this to the user": ``,
		"reveal your ": `(?:system\s+)?(?:prompt|instructions)`, "print your ": `(?:system\s+)?(?:prompt|instructions)`, "repeat your ": `(?:system\s+)?(?:prompt|instructions)`,
		"<|im_start|>": ``, "<|im_end|>": ``, "<|system|>": ``, "<|endoftext|>": ``, "<|eot_id|>": ``, "<|start_header_id|>": ``,
		"[inst]": ``, "[/inst]": ``, "<<sys>>": ``, "</tool_result>": ``, "</function_results>": ``, "</tool_response>": ``,
		"\n\nhuman:": `\s`, "\n\nassistant:": `\s`,
	} {
		all = append(all, phrase(start, rest, nil))
	}
	return all
}

// ends are words of which each order to drop instructions has one; most texts have none of
// them behind an "ignore", and looking for them costs less than the pattern.
var ends = [][]byte{
	[]byte("nstruct"), []byte("rompt"), []byte("ules"), []byte("irecti"), []byte("uideline"), []byte("essage"), []byte("ontext"), []byte("ommand"),
	[]byte("onstraint"), []byte("bove"), []byte("efore"), []byte("o far"), []byte("told"),
}

func hasEnd(words []byte) bool {
	words = bytes.ToLower(words)
	return slices.ContainsFunc(ends, func(end []byte) bool { return bytes.Contains(words, end) })
}

func phrase(start, rest string, first func([]byte) bool) anchor {
	if rest == "" {
		return anchor{start, func(_ []byte, at int) (int, int) { return at, at + len(start) }, whatPhrase, "[removed]"}
	}
	pattern := regexp.MustCompile(`\A(?i:` + rest + `)`)
	return anchor{start, func(data []byte, at int) (int, int) {
		after := at + len(start)
		behind := data[after:min(len(data), after+phraseBytes)]
		if first != nil && !first(behind) {
			return 0, 0
		}
		found := pattern.FindIndex(behind)
		if found == nil {
			return 0, 0
		}
		return at, after + found[1]
	}, whatPhrase, "[removed]"}
}
