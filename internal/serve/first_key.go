package serve

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

// The first key is in the state directory: under its name once it opens
// something, and under the other before.
const (
	firstKeyFile   = "first-key"
	pendingKeyFile = ".first-key-pending"
)

// firstKey makes a key when there is none, so that a new server can be used,
// and writes it where only the server's owner reads it. The file comes first:
// nobody could ever use a key that the store knows and no file has.
func (s *server) firstKey(ctx context.Context) error {
	path, pending := filepath.Join(s.store.Dir(), firstKeyFile), filepath.Join(s.store.Dir(), pendingKeyFile)
	key, made, err := s.access.EnsureFirstKey(ctx, func(key string) error {
		if err := writeSecret(pending, key+"\n"); err != nil {
			return unwritten(pending, err)
		}
		failpoint.Hit("key.written")
		return nil
	})
	switch {
	case err != nil:
		return err
	case made:
		failpoint.Hit("key.stored")
	default:
		key, made, err = s.earlierKey(ctx, pending)
		if err != nil {
			return err
		}
	}
	if !made {
		if _, err := os.Lstat(path); err == nil {
			s.o.Say("the first key is in " + path)
		}
		return nil
	}
	if err := rename(pending, path); err != nil {
		return unwritten(path, err)
	}
	s.o.Say("key written to " + path)
	if s.o.ShowKey {
		s.o.Say("key: " + key)
	}
	return nil
}

// earlierKey returns the key that a server has left which died between storing
// it and giving its file the name. One that the store does not know is removed.
func (s *server) earlierKey(ctx context.Context, pending string) (key string, found bool, err error) {
	text, err := os.ReadFile(pending) //nolint:gosec // in our own directory
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, unwritten(pending, err)
	}
	key = strings.TrimSpace(string(text))
	_, err = s.access.Authenticate(ctx, key)
	switch {
	case err == nil:
		return key, true, nil
	case sandbox.AsError(err).Code != sandbox.CodeUnauthorized:
		return "", false, err
	}
	if err := os.Remove(pending); err != nil {
		return "", false, unwritten(pending, err)
	}
	return "", false, nil
}

func unwritten(path string, err error) error {
	return &sandbox.Error{
		Code: sandbox.CodeInsufficient, Field: "state", Message: "the first key cannot be written to " + path + ": " + err.Error(),
		Hint: "make room, or make a key yourself: pinfold key create --state " + filepath.Dir(path), Err: err,
	}
}

// writeSecret makes a file anew, for good; nobody else may read it at any time.
func writeSecret(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // in our own directory
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// rename gives a file a name that it still has when the machine has died.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
