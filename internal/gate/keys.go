package gate

import (
	"bytes"
	"math"
)

// keys are the patterns of keys: those that their makers gave a form of their own, and
// values that look random beside a name that says what they are.
func keys() []anchor {
	const (
		upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
		digits = "0123456789"
		alnum  = upper + "abcdefghijklmnopqrstuvwxyz" + digits
		token  = alnum + "_-"
	)
	return []anchor{
		key("aws_access_key", "AKIA", upper+"234567", 16, 16),
		key("aws_access_key", "ASIA", upper+"234567", 16, 16),
		key("github_token", "ghp_", alnum, 36, 255),
		key("github_token", "gho_", alnum, 36, 255),
		key("github_token", "ghu_", alnum, 36, 255),
		key("github_token", "ghs_", alnum, 36, 255),
		key("github_token", "ghr_", alnum, 36, 255),
		key("github_token", "github_pat_", alnum+"_", 22, 255),
		key("gitlab_token", "glpat-", token, 20, 255),
		key("slack_token", "xoxb-", alnum+"-", 10, 255),
		key("slack_token", "xoxp-", alnum+"-", 10, 255),
		key("slack_token", "xoxa-", alnum+"-", 10, 255),
		key("slack_token", "xoxr-", alnum+"-", 10, 255),
		key("slack_token", "xoxs-", alnum+"-", 10, 255),
		key("slack_token", "xapp-", alnum+"-", 10, 255),
		key("slack_webhook", "hooks.slack.com/services/", alnum+"/", 20, 255),
		key("google_api_key", "AIza", token, 35, 35),
		key("google_token", "ya29.", token+".", 20, 4096),
		key("anthropic_key", "sk-ant-", token, 20, 255),
		key("openai_key", "sk-proj-", token, 20, 255),
		key("stripe_key", "sk_live_", alnum, 16, 255),
		key("stripe_key", "rk_live_", alnum, 16, 255),
		key("npm_token", "npm_", alnum, 36, 36),
		key("pypi_token", "pypi-AgEI", token, 50, 4096),
		{"begin ", privateKey, "private_key", "[private_key]"},
		{"eyjh", webToken, "jwt", "[jwt]"},
		{"eyj0", webToken, "jwt", "[jwt]"},
		{"eyjr", webToken, "jwt", "[jwt]"},
		{"eyja", webToken, "jwt", "[jwt]"},
		byName("secret"), byName("token"), byName("password"), byName("passwd"), byName("api_key"), byName("api-key"), byName("apikey"),
		byName("access_key"), byName("private_key"), byName("credential"),
	}
}

// key is one of a form: a prefix, in just these letters, and so many of these after it.
func key(what, prefix, letters string, least, most int) anchor {
	set := setOf(letters)
	match := func(data []byte, at int) (int, int) {
		if !bytes.HasPrefix(data[at:], []byte(prefix)) || inWord(data, at) {
			return 0, 0
		}
		n := run(data[at+len(prefix):], &set, most+1)
		if n < least || n > most {
			return 0, 0
		}
		return at, at + len(prefix) + n
	}
	return anchor{string(bytes.ToLower([]byte(prefix))), match, what, "[" + what + "]"}
}

type bytesSet [256]bool

func setOf(letters string) (s bytesSet) {
	for i := range len(letters) {
		s[letters[i]] = true
	}
	return s
}

// run is how many bytes data begins with that are in the set, counted up to most.
func run(data []byte, set *bytesSet, most int) (n int) {
	for n < len(data) && n < most && set[data[n]] {
		n++
	}
	return n
}

var (
	wordSet  = setOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
	valueSet = setOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/=.~")
)

// inWord says that the byte before belongs to the same word, and not to an escape such as
// \n in JSON.
func inWord(data []byte, at int) bool {
	return at > 0 && wordSet[data[at-1]] && data[at-1] != '-' && data[at-1] != '_' && (at < 2 || data[at-2] != '\\')
}

// maxPrivateKey bounds how far the end of a private key is looked for, in bytes.
const maxPrivateKey = 16 << 10

// privateKey is a block that begins -----BEGIN … PRIVATE KEY-----, up to its end or as far
// as it can go.
func privateKey(data []byte, at int) (int, int) {
	const dashes = "-----"
	from := at - len(dashes)
	if from < 0 || string(data[from:at]) != dashes {
		return 0, 0
	}
	first := data[at:min(len(data), at+60)]
	private := bytes.Index(first, []byte("PRIVATE KEY"))
	if private < 0 || bytes.IndexByte(first[:private], '\n') >= 0 {
		return 0, 0
	}
	rest := data[at:min(len(data), at+maxPrivateKey)]
	if end := bytes.Index(rest, []byte(dashes+"END ")); end >= 0 {
		after := rest[end+len(dashes):]
		if last := bytes.Index(after[:min(len(after), 60)], []byte(dashes)); last >= 0 {
			return from, at + end + len(dashes) + last + len(dashes)
		}
	}
	return from, at + len(rest)
}

// webToken is a JSON Web Token: three parts in base64url, the first two of JSON objects.
func webToken(data []byte, at int) (int, int) {
	if at > 0 && wordSet[data[at-1]] && (at < 2 || data[at-2] != '\\') {
		return 0, 0
	}
	end := at
	for i := range 3 {
		if i < 2 && !bytes.HasPrefix(data[end:], []byte("eyJ")) {
			return 0, 0
		}
		n := run(data[end:], &wordSet, maxPrivateKey)
		if end += n; n < 10 || i < 2 && (end >= len(data) || data[end] != '.') {
			return 0, 0
		}
		if i < 2 {
			end++
		}
	}
	return at, end
}

// byName is a value that looks random after a name that says what it is, as in
// API_TOKEN="…".
func byName(name string) anchor {
	return anchor{name, func(data []byte, at int) (int, int) { return assigned(data, at+len(name)) }, "named_key", "[named_key]"}
}

// Bounds on what is taken for a key because of its name.
const (
	minNamed  = 20
	maxNamed  = 256
	minRandom = 3.6 // bits of entropy for each letter, of those that are there
)

func assigned(data []byte, at int) (int, int) {
	data = data[:min(len(data), at+400)]
	at += run(data[at:], &wordSet, 30)
	skip := func(letters string, most int) (n int) {
		for n < most && at < len(data) && bytes.IndexByte([]byte(letters), data[at]) >= 0 {
			at++
			n++
		}
		return n
	}
	skip(`"'\ `, 4)
	if skip(":=>", 2) == 0 {
		return 0, 0
	}
	skip(`"'\ `, 4)
	n := run(data[at:], &valueSet, maxNamed)
	if n < minNamed || !looksRandom(data[at:at+n]) {
		return 0, 0
	}
	return at, at + n
}

// looksRandom says that a text has letters and digits and, by how often each is there, as
// much entropy as what nobody has written.
func looksRandom(b []byte) bool {
	var counts [256]int
	letters, digits := 0, 0
	for _, c := range b {
		counts[c]++
		switch {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c|0x20 && c|0x20 <= 'z':
			letters++
		}
	}
	if letters < 4 || digits < 2 {
		return false
	}
	entropy := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(b))
			entropy -= p * math.Log2(p)
		}
	}
	return entropy >= minRandom || isHex(b) && entropy >= 3
}

func isHex(b []byte) bool {
	return len(b) >= 32 && len(bytes.Trim(bytes.ToLower(b), "0123456789abcdef")) == 0
}
