package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// A key is pfk_ID_SECRET: 10 and 32 characters of a to z and 2 to 7. The last
// four of the secret are a checksum of what stands before them, so that a key
// that was cut off or mistyped is told apart from one that is not known. A key
// has no other form: scanners for leaked secrets find it by this one.
const (
	prefix        = "pfk_"
	idLength      = 10
	secretLength  = 32
	checkLength   = 4
	keyLength     = len(prefix) + idLength + 1 + secretLength
	alphabet      = "abcdefghijklmnopqrstuvwxyz234567"
	bitsPerLetter = 5
)

// newKey makes a key of fresh random letters.
func newKey() (id, key string) {
	const random = idLength + secretLength - checkLength
	b := make([]byte, (random*bitsPerLetter+7)/8)
	_, _ = rand.Read(b) // never fails: the program ends where there is no randomness
	letters := encoding().EncodeToString(b)[:random]
	id = letters[:idLength]
	body := prefix + id + "_" + letters[idLength:]
	return id, body + checksum(body)
}

// parse splits a key. It says no to everything that cannot be one, before
// anything is looked up.
func parse(key string) (id string, ok bool) {
	if len(key) != keyLength || !strings.HasPrefix(key, prefix) || key[len(prefix)+idLength] != '_' {
		return "", false
	}
	body := key[:keyLength-checkLength]
	if strings.Trim(key[len(prefix):len(prefix)+idLength]+key[len(prefix)+idLength+1:], alphabet) != "" {
		return "", false
	}
	return key[len(prefix) : len(prefix)+idLength], key[keyLength-checkLength:] == checksum(body)
}

// checksum finds slips, not forgeries: it is no secret.
func checksum(body string) string {
	b := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(body)))
	return encoding().EncodeToString(b)[:checkLength]
}

func encoding() *base32.Encoding { return base32.NewEncoding(alphabet).WithPadding(base32.NoPadding) }

// hash is what is kept of a key.
func hash(key string) []byte {
	h := sha256.Sum256([]byte(key))
	return h[:]
}
