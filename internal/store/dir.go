package store

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pinfold/sandbox"
)

const (
	databaseName = "pinfold.db"
	lockName     = "pinfold.lock"
)

// Exists says whether a directory holds a server's state.
func Exists(dir string) bool { return exists(databaseFile(dir)) }

func databaseFile(dir string) string { return filepath.Join(dir, databaseName) }

// prepareDir checks the state directory and what is in it.
func prepareDir(dir string) error {
	if err := CheckDir(dir); err != nil {
		return err
	}
	return checkFile(dir)
}

// CheckDir says why a directory that is there cannot be a state directory, as an
// error of code config_invalid: programs' outputs and the hashes of keys are in
// it, so nobody else may write to it.
func CheckDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return unusable(err)
	}
	if !info.IsDir() {
		return unusable(&fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR})
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return &sandbox.Error{
			Code: sandbox.CodeConfigInvalid, Field: "state", Message: fmt.Sprintf("others may write to %s (mode %03o)", dir, mode),
			Hint: "chmod go-w " + quote(dir),
		}
	}
	return nil
}

// checkFile looks at the database file from outside. An empty one has lost
// everything: new ones appear under their name only when they are whole.
func checkFile(dir string) error {
	file := databaseFile(dir)
	info, err := os.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && exists(file+"-wal"): // SQLite would play it into a new file
		return corrupt(dir, "only its log is there", nil)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unusable(err)
	case !info.Mode().IsRegular():
		return corrupt(dir, "it is not a regular file", nil)
	case info.Size() == 0:
		return corrupt(dir, "it is empty", nil)
	case info.Mode().Perm()&0o077 != 0:
		if err := os.Chmod(file, 0o600); err != nil {
			return unusable(err)
		}
	}
	return nil
}

func unusable(err error) *sandbox.Error {
	return (&sandbox.Error{
		Code: sandbox.CodeConfigInvalid, Field: "state", Message: "the state directory cannot be used: " + err.Error(), Err: err,
	}).WithAdvice(sandbox.Advise("set %s to a directory that you may write to", sandbox.Config("state")))
}

// acquire takes the directory for this process. A process that is about to
// let go (one that makes a key) is waited for; a server is not.
func acquire(dir string, wait time.Duration) (*os.File, error) {
	name := filepath.Join(dir, lockName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unusable(err)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		taken, err := lockFile(f)
		if err == nil && taken {
			break
		}
		if err == nil && time.Since(begin) < wait {
			continue
		}
		held := conflict(dir, f)
		drop(f)
		if err != nil {
			return nil, unusable(err)
		}
		return nil, held
	}
	// Whom to name to the second one. That it is stale, or is missing on a
	// full disk, costs only that message.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

func conflict(dir string, f *os.File) *sandbox.Error {
	var b [20]byte
	n, _ := f.ReadAt(b[:], 0)
	who := "another process"
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n]))); err == nil && pid > 0 {
		who = fmt.Sprintf("process %d", pid)
	}
	return (&sandbox.Error{
		Code: sandbox.CodeConflict, Field: "state", Message: fmt.Sprintf("%s uses the state directory %s", who, dir),
	}).WithAdvice(sandbox.Advise("end that server first, or set %s to another directory", sandbox.Config("state")))
}

// Quarantine moves the database of a state directory aside, into a directory
// of its own that it returns, and destroys nothing. It refuses (code conflict)
// while a server runs there, and says not_found when there is no database.
func Quarantine(dir string) (movedTo string, err error) {
	if !exists(databaseFile(dir)) && !exists(databaseFile(dir)+"-wal") {
		return "", &sandbox.Error{Code: sandbox.CodeNotFound, Message: "there is no database in " + dir, Hint: "start without --quarantine"}
	}
	lock, err := acquire(dir, 0)
	if err != nil {
		return "", err
	}
	defer drop(lock)
	movedTo, err = makeQuarantine(dir, time.Now())
	if err != nil {
		return "", unusable(err)
	}
	// The log follows the database: left alone it is noticed, while a database
	// without it would look whole and lack what came last.
	for _, name := range []string{databaseName, databaseName + "-wal", databaseName + "-shm"} {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(movedTo, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", unusable(err)
		}
	}
	return movedTo, nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

func makeQuarantine(dir string, now time.Time) (string, error) {
	base := filepath.Join(dir, "quarantine-"+now.UTC().Format("20060102T150405Z"))
	name := base
	for i := 2; ; i++ {
		err := os.Mkdir(name, 0o700)
		if !errors.Is(err, fs.ErrExist) || i > 1000 {
			return name, err
		}
		name = fmt.Sprintf("%s-%d", base, i)
	}
}

// dsn names the database for the driver.
func dsn(file string, pragmas ...string) (string, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	q := url.Values{"mode": {"rw"}, "_dqs": {"0"}, "_defensive": {"1"}, "_error_rc": {"1"}}
	q["_pragma"] = append([]string{"busy_timeout(5000)", "foreign_keys(1)", "trusted_schema(0)", "cell_size_check(1)", "temp_store(memory)"}, pragmas...)
	path := (&url.URL{Path: abs}).EscapedPath() // ?, # and % would end the name
	return "file:" + path + "?" + q.Encode(), nil
}

// quote makes a path safe to paste into a shell.
func quote(path string) string {
	plain := strings.IndexFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
	if plain && path != "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
