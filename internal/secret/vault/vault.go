// Package vault keeps secrets at rest: each tenant's in a file of its own, encrypted with
// age under one key, which is elsewhere.
package vault

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"pinfold/internal/secret"
	"pinfold/sandbox"
)

const (
	maxSecrets = 100 // of one tenant
	maxFile    = 4 << 20
	maxKeyFile = 64 << 10
)

// Store keeps the secrets of each tenant in a file of its own, encrypted. It is safe for
// concurrent use; one process has it. A nil Store has none, and tells why
// whoever sets or wants one.
type Store struct {
	dir string
	key *age.X25519Identity
	now func() time.Time

	mu sync.RWMutex
}

// NewKey makes a key, as it stands in a key file.
func NewKey() (string, error) {
	k, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	return k.String(), nil
}

// ReadKey reads the key of a file, as NewKey and age-keygen make them: one that group and
// others may read is refused.
func ReadKey(file string) (string, error) {
	f, err := os.Open(file) //nolint:gosec // the operator names it
	if err != nil {
		return "", keyError(fmt.Sprintf("the key file cannot be read: %v", err))
	}
	defer f.Close() //nolint:errcheck // only read
	st, err := f.Stat()
	switch {
	case err != nil:
		return "", keyError(fmt.Sprintf("the key file cannot be read: %v", err))
	case !st.Mode().IsRegular() || st.Size() > maxKeyFile:
		return "", keyError("the key file is no small regular file")
	case st.Mode().Perm()&0o077 != 0:
		return "", keyError("others than its owner may read the key file").WithHint("chmod 600 " + file)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return "", keyError("the key file cannot be read")
	}
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			_, err := parse(line)
			return line, err
		}
	}
	return "", keyError("there is no key in the key file")
}

func keyError(message string) *sandbox.Error {
	return (&sandbox.Error{Code: sandbox.CodeConfigInvalid, Field: "secrets.key_file", Message: message}).
		WithHint("make one with: (umask 077; pinfold secret new-key > FILE)")
}

// Open opens the store in a directory, which it makes, with a key.
func Open(dir, key string) (*Store, error) {
	k, err := parse(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeConfigInvalid, "the directory of secrets cannot be made: %w", err)
	}
	return &Store{dir: dir, key: k, now: time.Now}, nil
}

// parse reads a key. No error has a part of it.
func parse(key string) (*age.X25519Identity, error) {
	k, err := age.ParseX25519Identity(strings.TrimSpace(key))
	if err != nil {
		return nil, keyError("this is no key for secrets")
	}
	return k, nil
}

// kept is the content of a tenant's file.
type kept struct {
	Tenant  string      `json:"tenant"` // a file under another name is none of its
	Secrets []keptValue `json:"secrets"`
}

type keptValue struct {
	sandbox.Secret

	Value string `json:"value"`
}

// Set makes a secret or takes the place of one.
func (s *Store) Set(_ context.Context, tenant, name string, given sandbox.SetSecret) (sandbox.Secret, error) {
	if s == nil {
		return sandbox.Secret{}, secret.NotKept()
	}
	if err := sandbox.CheckSecretName(name); err != nil {
		return sandbox.Secret{}, err
	}
	given, err := given.Canonical()
	if err != nil {
		return sandbox.Secret{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read(tenant)
	if err != nil {
		return sandbox.Secret{}, err
	}
	made := secret.New(name, given).Secret
	made.UpdatedAt = s.now().UTC().Truncate(time.Second)
	all = slices.DeleteFunc(all, func(k keptValue) bool { return k.Name == name })
	if len(all) >= maxSecrets {
		return sandbox.Secret{}, (&sandbox.Error{Code: sandbox.CodeTooLarge, Message: fmt.Sprintf("there are %d secrets already", maxSecrets)}).WithHint("remove one")
	}
	all = append(all, keptValue{made, given.Value})
	slices.SortFunc(all, func(a, b keptValue) int { return cmp.Compare(a.Name, b.Name) })
	return made, s.write(tenant, all)
}

// List returns what can be known of a tenant's secrets, by their names.
func (s *Store) List(_ context.Context, tenant string) (list []sandbox.Secret, err error) {
	if s == nil {
		return nil, nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	all, err := s.read(tenant)
	for _, k := range all {
		list = append(list, k.Secret)
	}
	return list, err
}

// Remove removes a secret. What uses it goes on with it until its sandbox ends.
func (s *Store) Remove(_ context.Context, tenant, name string) error {
	if s == nil {
		return secret.NotKept()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read(tenant)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(k keptValue) bool { return k.Name == name })
	if at < 0 {
		return secret.NotFound(name)
	}
	return s.write(tenant, slices.Delete(all, at, at+1))
}

// Find implements secret.Finder.
func (s *Store) Find(_ context.Context, tenant, name string) (secret.Secret, error) {
	if s == nil {
		return secret.Secret{}, secret.NotKept()
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	all, err := s.read(tenant)
	if err != nil {
		return secret.Secret{}, err
	}
	for _, k := range all {
		if k.Name == name {
			return secret.Of(k.Secret, k.Value), nil
		}
	}
	return secret.Secret{}, secret.NotFound(name)
}

// file is where a tenant's secrets are.
func (s *Store) file(tenant string) (string, error) {
	if tenant == "" || !filepath.IsLocal(tenant) || strings.ContainsAny(tenant, `/\`) {
		return "", &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "tenant", Message: "is no name for a tenant"}
	}
	return filepath.Join(s.dir, tenant+".age"), nil
}

// read returns a tenant's secrets. The lock is held.
func (s *Store) read(tenant string) ([]keptValue, error) {
	name, err := s.file(tenant)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	broken := func(why string) error {
		return &sandbox.Error{
			Code: sandbox.CodeStateCorrupt, Message: "the secrets of this tenant cannot be read: " + why,
			Hint: "its operator can look whether the key is that with which they were kept, or remove secrets/" + tenant + ".age in the state directory and set them anew",
		}
	}
	if err != nil {
		return nil, broken("the file cannot be opened")
	}
	defer f.Close() //nolint:errcheck // only read
	plain, err := age.Decrypt(io.LimitReader(f, maxFile), s.key)
	if err != nil {
		return nil, broken("the key does not fit")
	}
	content, err := io.ReadAll(io.LimitReader(plain, maxFile))
	if err != nil {
		return nil, broken("the file is damaged")
	}
	var k kept
	if json.Unmarshal(content, &k) != nil || k.Tenant != tenant {
		return nil, broken("the file is another's")
	}
	return k.Secrets, nil
}

// write keeps a tenant's secrets, all or none. The lock is held.
func (s *Store) write(tenant string, all []keptValue) (err error) {
	name, err := s.file(tenant)
	if err != nil {
		return err
	}
	failed := func(err error) error {
		return sandbox.Errorf(sandbox.CodeResourceUnavailable, "the secret cannot be kept: %w", err)
	}
	content, err := json.Marshal(kept{tenant, all})
	if err != nil {
		return failed(err)
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, s.key.Recipient())
	if err == nil {
		_, err = w.Write(content)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return failed(err)
	}
	if err := replace(name, sealed.Bytes()); err != nil {
		return failed(err)
	}
	return nil
}

// replace writes a file beside the one of that name and puts it in its place.
func replace(name string, content []byte) error {
	beside := name + ".new"
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // in our directory
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(beside, name); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name)) //nolint:gosec // ours
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
