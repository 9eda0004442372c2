package audit

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"pinfold/sandbox"
)

const (
	saltBytes  = 16
	saltChars  = 2 * saltBytes
	maxLeaf    = 2320                               // bytes of a leaf as a text in JSON: a receipt has it so
	noSalt     = "--------------------------------" // in the place of one that was deleted
	leafPrefix = `{"v":1,"index":`
)

// newSalt returns a salt in hexadecimal.
func newSalt() string {
	var b [saltBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// commitment is what an entry says of its salt. That tells nobody what the salt is.
func commitment(salt string) string {
	sum := sha256.Sum256([]byte(salt))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// digest is what an entry says of a content.
func digest(salt, name string, content []byte) string {
	h := hmac.New(sha256.New, []byte(salt))
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write(content)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// appendLine adds an entry's line to b.
func appendLine(b, leaf []byte, salt string) []byte {
	b = append(b, leaf...)
	b = append(b, '\t')
	b = append(b, salt...)
	return append(b, '\n')
}

// splitLine takes a line, without its line feed, apart. It looks only at its form: JSON
// has no tab.
func splitLine(line []byte) (leaf []byte, salt string, err error) {
	cut := len(line) - saltChars - 1
	if cut < len(leafPrefix) || line[cut] != '\t' || bytes.IndexByte(line[:cut], '\t') >= 0 {
		return nil, "", errors.New("it is no entry with a salt")
	}
	return line[:cut], string(line[cut+1:]), nil
}

// whole says whether a line is one that we wrote, not what a crash left of one.
func whole(index int64, line []byte) bool {
	leaf, salt, err := splitLine(line)
	return err == nil && json.Valid(leaf) && indexOf(leaf) == index && saltFits(leaf, salt)
}

// indexOf is the index that a leaf says it has, -1 where it says none.
func indexOf(leaf []byte) int64 {
	rest, ok := bytes.CutPrefix(leaf, []byte(leafPrefix))
	end := bytes.IndexByte(rest, ',')
	if !ok || end < 1 || end > 19 {
		return -1
	}
	n, err := strconv.ParseInt(string(rest[:end]), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// saltFits says whether a salt is the one of a leaf, or was deleted.
func saltFits(leaf []byte, salt string) bool {
	if salt == noSalt {
		return true
	}
	_, rest, ok := bytes.Cut(leaf[:min(len(leaf), 120)], []byte(`"salt_sha256":"`))
	said, _, closed := bytes.Cut(rest, []byte{'"'})
	return ok && closed && string(said) == commitment(salt)
}

// makeLeaf is the JSON of an entry. As a text in JSON it has at most maxLeaf bytes.
func makeLeaf(e sandbox.AuditEntry) ([]byte, error) {
	e = fit(e)
	leaf, err := json.Marshal(e)
	for _, shorter := range shorters {
		if err != nil || inJSON(leaf) <= maxLeaf {
			break
		}
		shorter(&e)
		leaf, err = json.Marshal(e)
	}
	if err == nil && inJSON(leaf) > maxLeaf {
		err = fmt.Errorf("an entry of %d bytes", inJSON(leaf))
	}
	return leaf, err
}

// shorters leave out of an entry what is among its digests, or of least use, until it fits.
var shorters = []func(e *sandbox.AuditEntry){
	func(e *sandbox.AuditEntry) {
		if e.Isolation != nil {
			e.Isolation = &sandbox.AuditIsolation{Driver: e.Isolation.Driver, Level: e.Isolation.Level, Enforced: []string{andMore}}
		}
	},
	func(e *sandbox.AuditEntry) {
		if e.Network != nil && len(e.Network.Secrets) > 0 {
			e.Network.Secrets = []string{andMore}
		}
	},
	func(e *sandbox.AuditEntry) {
		if e.Policy != nil && len(e.Policy.Rules) > 0 {
			e.Policy.Rules = []string{andMore}
		}
	},
	func(e *sandbox.AuditEntry) {
		if len(e.Findings) > 0 {
			e.Findings = []string{andMore}
		}
	},
	func(e *sandbox.AuditEntry) {
		if e.Evidence != "" {
			e.Evidence = andMore
		}
	},
	func(e *sandbox.AuditEntry) { // names, of which those that are ours have less than this
		for _, name := range []*string{&e.Tenant, &e.Key, &e.Template, &e.Language, &e.Signal, &e.Error} {
			*name = cut(*name, 20)
		}
		if e.Policy != nil {
			e.Policy.Digest, e.Policy.By = cut(e.Policy.Digest, 20), cut(e.Policy.By, 20)
		}
	},
}

// inJSON is how many bytes a JSON text has as a text in JSON.
func inJSON(text []byte) int {
	return len(text) + bytes.Count(text, []byte{'"'}) + bytes.Count(text, []byte{'\\'}) + 2
}

// Bounds in bytes of JSON on what others choose in an entry.
const (
	maxEvidence = 120
	maxEnforced = 560
	maxOthers   = 120 // what is required, and what is not enforced
	maxSecrets  = 300 // the names of secrets that were used
	maxRules    = 200 // the rules of a policy that matched, and those of the scan
)

// fit cuts what is too long for a receipt. All that is enforced, and what is not, is among
// the digests.
func fit(e sandbox.AuditEntry) sandbox.AuditEntry {
	for _, word := range []struct {
		text *string
		most int
	}{
		{&e.Tenant, 40},
		{&e.Key, 32},
		{&e.ID, 40},
		{&e.Sandbox, 40},
		{&e.Origin, 40},
		{&e.Language, 24},
		{&e.Template, 64},
		{&e.Signal, 16},
		{&e.Error, 32},
		{&e.Evidence, maxEvidence},
	} {
		*word.text = cut(*word.text, word.most)
	}
	if e.Isolation != nil {
		i := *e.Isolation
		i.Driver, i.Level = cut(i.Driver, 24), cut(i.Level, 16)
		i.Required, i.Enforced, i.NotEnforced = cutList(i.Required, maxOthers), cutList(i.Enforced, maxEnforced), cutList(i.NotEnforced, maxOthers)
		e.Isolation = &i
	}
	e.Findings = cutList(e.Findings, maxRules)
	if e.Policy != nil {
		p := *e.Policy
		p.Digest, p.Rules, p.By = cut(p.Digest, 64), cutList(p.Rules, maxRules), cut(p.By, 32)
		e.Policy = &p
	}
	if e.Network != nil {
		n := *e.Network
		n.Secrets = cutList(n.Secrets, maxSecrets)
		e.Network = &n
	}
	return e
}

const andMore = sandbox.AuditMore

// cut shortens a text until its JSON has at most so many bytes.
func cut(s string, most int) string {
	if len(s) > most {
		s = s[:most] + andMore
	}
	for s = sandbox.SafeText(s, most); ; s = string([]rune(s)[:len([]rune(s))/2]) + andMore {
		if b, err := json.Marshal(s); err == nil && len(b) <= most+16 {
			return s
		}
	}
}

// cutList leaves out the last ones of a list that is too long, and says so.
func cutList(all []string, most int) []string {
	n := 0
	for i, s := range all {
		if n += len(s) + 3; n > most {
			return append(append([]string(nil), all[:i]...), andMore)
		}
	}
	return all
}
