package audit

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"pinfold/sandbox"
)

const (
	keyName    = "key"
	publicName = "key.pub"
	maxKeyFile = 1 << 10
	maxNote    = 4 << 10
	maxName    = 64
)

// Checkpoint is a head of a log: what a signed note says.
type Checkpoint struct {
	Name string // of the log
	Size int64
	Root rootHash
}

type rootHash = tlog.Hash

// text is the checkpoint as it is signed (C2SP tlog-checkpoint).
func (c Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Name, c.Size, c.Root)
}

// openCheckpoint checks a signed note and reads it.
func openCheckpoint(signed []byte, key Key) (Checkpoint, error) {
	c, _, err := openNote(signed, key)
	return c, err
}

// openNote is openCheckpoint that also returns the note, of the key's signatures only.
func openNote(signed []byte, key Key) (Checkpoint, string, error) {
	if len(signed) > maxNote {
		return Checkpoint{}, "", errors.New("it is too long for a checkpoint")
	}
	n, err := note.Open(signed, note.VerifierList(key.verifier))
	if err != nil {
		return Checkpoint{}, "", err
	}
	c, err := parseCheckpoint(n.Text)
	if err == nil && c.Name != key.Name() {
		err = errors.New("it is no checkpoint of this log")
	}
	if err != nil {
		return Checkpoint{}, "", err
	}
	alone, err := note.Sign(&note.Note{Text: n.Text, Sigs: n.Sigs})
	return c, string(alone), err
}

// parseCheckpoint reads the text of a note.
func parseCheckpoint(text string) (Checkpoint, error) {
	lines := strings.SplitN(text, "\n", 4)
	if len(lines) < 4 {
		return Checkpoint{}, errors.New("it is no checkpoint")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return Checkpoint{}, errors.New("its size is not a number")
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil || base64.StdEncoding.EncodeToString(root[:]) != lines[2] {
		return Checkpoint{}, errors.New("its root is not a hash")
	}
	return Checkpoint{Name: lines[0], Size: size, Root: root}, nil
}

// Key is a log's public key. The zero value is of no log.
type Key struct {
	verifier keyVerifier
	text     string // as in key.pub
}

type keyVerifier = note.Verifier

// Name is the log's.
func (k Key) Name() string { return k.verifier.Name() }

// String is the key as it stands in key.pub.
func (k Key) String() string { return k.text }

// ParseKey reads a public key as it stands in key.pub: NAME+HASH+KEY.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	v, err := note.NewVerifier(text)
	if err != nil {
		return Key{}, &sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Field: "key", Message: "this is not the public key of an audit log", Err: err,
			Hint: "it is one line, NAME+HASH+KEY: the file audit/key.pub in the server's state directory, or the answer to GET /v1/audit/checkpoint",
		}
	}
	return Key{v, text}, nil
}

// KeyFile is where the log in a directory has its public key.
func KeyFile(dir string) string { return filepath.Join(dir, publicName) }

// CheckName refuses what cannot be the name of a log.
func CheckName(name string) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '+' || r == '"' || r == '\\' }
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, odd) {
		return &sandbox.Error{
			Code: sandbox.CodeConfigInvalid, Field: "audit.name", Message: "is no name for an audit log",
			Hint: fmt.Sprintf("1 to %d letters without spaces or +, such as audit.example.com", maxName),
		}
	}
	return nil
}

// signer is a log's key.
type signer struct {
	note.Signer

	public   string // as in key.pub
	verifier Key
}

func (s signer) sign(c Checkpoint) (string, error) {
	signed, err := note.Sign(&note.Note{Text: c.text()}, s)
	return string(signed), err
}

// loadKey reads the log's key, or makes it where the log is new.
func loadKey(dir, name string, isNew bool) (signer, error) {
	file := filepath.Join(dir, keyName)
	secret, err := readSmall(file, maxKeyFile)
	if errors.Is(err, os.ErrNotExist) && isNew {
		return makeKey(dir, name)
	}
	if err != nil {
		return signer{}, corrupt(dir, "its key cannot be read: "+err.Error(), err)
	}
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(file, 0o600); err != nil {
			return signer{}, unusable(err)
		}
	}
	public, err := readSmall(filepath.Join(dir, publicName), maxKeyFile)
	if err != nil {
		return signer{}, corrupt(dir, "its public key cannot be read: "+err.Error(), err)
	}
	return newSigner(dir, strings.TrimSpace(string(secret)), strings.TrimSpace(string(public)))
}

func newSigner(dir, secret, public string) (signer, error) {
	s, err := note.NewSigner(secret)
	if err != nil {
		return signer{}, corrupt(dir, "its key is damaged", nil) // the error could show it
	}
	v, err := note.NewVerifier(public)
	if err != nil || v.Name() != s.Name() || v.KeyHash() != s.KeyHash() {
		return signer{}, corrupt(dir, "key.pub is not of its key", err)
	}
	return signer{Signer: s, public: public, verifier: Key{v, public}}, nil
}

// makeKey makes a key and writes it down. The public part comes first: a log has
// its key when the secret part is there.
func makeKey(dir, name string) (signer, error) {
	if err := CheckName(name); err != nil {
		return signer{}, err
	}
	secret, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return signer{}, unusable(err)
	}
	if err := writeWhole(filepath.Join(dir, publicName), public+"\n", 0o644); err != nil {
		return signer{}, unusable(err)
	}
	if err := writeWhole(filepath.Join(dir, keyName), secret+"\n", 0o600); err != nil {
		return signer{}, unusable(err)
	}
	return newSigner(dir, secret, public)
}
