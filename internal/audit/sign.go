package audit

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"pinfold/sandbox"
)

// Signer signs texts that are not a log's, with a key of its own.
type Signer struct{ key signer }

// OpenSigner reads the key in a directory, or makes both. The name is for a new one.
func OpenSigner(dir, name string) (*Signer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(err)
	}
	_, err := os.Lstat(filepath.Join(dir, keyName))
	key, err := loadKey(dir, name, errors.Is(err, os.ErrNotExist))
	if err != nil {
		return nil, err
	}
	return &Signer{key}, nil
}

// Sign returns a text as a signed note (C2SP signed-note). It ends with a line feed.
func (s *Signer) Sign(text string) (string, error) {
	signed, err := note.Sign(&note.Note{Text: text}, s.key)
	return string(signed), err
}

// PublicKey is what Key.Open checks with.
func (s *Signer) PublicKey() string { return s.key.public }

// Open checks a signed note and returns its text.
func (k Key) Open(signed string) (string, error) {
	if len(signed) > maxNote {
		return "", &sandbox.Error{Code: sandbox.CodeTooLarge, Message: "the signature is too long"}
	}
	n, err := note.Open([]byte(signed), note.VerifierList(k.verifier))
	if err != nil {
		return "", err
	}
	return n.Text, nil
}
