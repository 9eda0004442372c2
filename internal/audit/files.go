package audit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"pinfold/sandbox"
)

// Dir is where a server has its log, in its state directory.
const Dir = "audit"

// Names in a log's directory.
const (
	entriesName     = "entries"
	hashesName      = "hashes"
	checkpointsName = "checkpoints"
	textsName       = "texts"
	lockName        = "lock"
	tornName        = "torn-"
)

// readSmall reads a regular file that has at most so many bytes.
func readSmall(name string, most int64) ([]byte, error) {
	f, err := os.Open(name) //nolint:gosec // of the log's directory, or named by a person
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s is longer than %d bytes", name, most)
	}
	return b, err
}

// writeWhole puts a file in its place when all of it is on the disk.
func writeWhole(name, text string, mode os.FileMode) error {
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode) //nolint:gosec // of the log's directory
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if cErr := f.Close(); err == nil {
		err = cErr
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err == nil {
		err = syncDir(filepath.Dir(name))
	}
	return err
}

// syncDir makes the names in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // of the log's
	if err != nil {
		return err
	}
	err = d.Sync()
	if cErr := d.Close(); err == nil {
		err = cErr
	}
	return err
}

func unusable(err error) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeConfigInvalid, Field: "audit", Message: "the audit log cannot be used: " + err.Error(), Err: err,
		Hint: "the server must be able to write to audit/ in its state directory; audit.enabled: false goes on without a record",
	}
}

// corrupt says that a log is not what it was.
func corrupt(dir, why string, err error) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeStateCorrupt, Message: fmt.Sprintf("the audit log in %s is damaged: %s", dir, why), Err: err,
		Hint: "pinfold audit verify --state " + quote(filepath.Dir(dir)) + " names the first entry that is not what it was; move the directory aside to begin a new log, and keep it",
	}
}

// quote makes a path safe to paste into a shell.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
