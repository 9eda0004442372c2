package store

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"pinfold/sandbox"
)

// fault says what went wrong while doing something, in words for the person
// who runs the server. What SQLite said is the private cause.
func (s *Store) fault(doing string, err error) error {
	var said *sandbox.Error
	if err == nil || errors.As(err, &said) {
		return err
	}
	select {
	case <-s.closing: // a connection was closed under it
		return closed()
	default:
		return explain(s.dir, doing, err)
	}
}

func explain(dir, doing string, err error) *sandbox.Error {
	e := &sandbox.Error{Code: sandbox.CodeInternal, Message: doing + " failed in the database", Err: err}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e.Message = doing + " was given up: " + err.Error()
		return e
	}
	var fromSQLite *sqlite.Error
	if !errors.As(err, &fromSQLite) {
		return e
	}
	primary := fromSQLite.Code() & 0xff
	full := primary == sqlite3.SQLITE_FULL || primary == sqlite3.SQLITE_IOERR && diskFull(dir)
	switch {
	case full:
		e.Code, e.Message = sandbox.CodeInsufficient, doing+" failed: the disk of "+dir+" is full"
		e.Hint = "make room: df -h " + quote(dir)
	case primary == sqlite3.SQLITE_CORRUPT || primary == sqlite3.SQLITE_NOTADB:
		e.Code, e.Message = sandbox.CodeStateCorrupt, databaseFile(dir)+" is damaged"
		return e.WithAdvice(quarantine(dir))
	case primary == sqlite3.SQLITE_READONLY || primary == sqlite3.SQLITE_PERM || primary == sqlite3.SQLITE_CANTOPEN || primary == sqlite3.SQLITE_AUTH:
		e.Code, e.Message = sandbox.CodeResourceUnavailable, doing+" failed: "+dir+" cannot be written"
		e.Hint = "it must be on a writable file system and belong to the user who runs pinfold: ls -ld " + quote(dir)
	case primary == sqlite3.SQLITE_BUSY || primary == sqlite3.SQLITE_LOCKED:
		e.Code, e.Message = sandbox.CodeBusy, doing+" failed: another process holds the database in "+dir
		e.Hint = "try again; close other programs that have it open"
	case primary == sqlite3.SQLITE_TOOBIG:
		e.Code, e.Message = sandbox.CodeTooLarge, doing+" failed: more than the database keeps in one place"
		return e.WithAdvice(sandbox.Advise("ask for less output, such as %s", sandbox.Set("limits.output_bytes", sandbox.DefaultLimits().OutputBytes)))
	case primary == sqlite3.SQLITE_IOERR:
		e.Code, e.Message = sandbox.CodeResourceUnavailable, doing+" failed: reading or writing the disk of "+dir
		e.Hint = "look for errors of the disk: dmesg | tail"
	}
	return e
}

// isDuplicate says that a row with that id exists.
func isDuplicate(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_CONSTRAINT
}

// corrupt is the error for a file that cannot be used.
func corrupt(dir, why string, err error) *sandbox.Error {
	return (&sandbox.Error{Code: sandbox.CodeStateCorrupt, Message: fmt.Sprintf("%s is damaged: %s", databaseFile(dir), why), Err: err}).WithAdvice(quarantine(dir))
}

func quarantine(dir string) sandbox.Advice {
	return sandbox.Advise("put it aside and begin anew: %s", sandbox.HostCommand("pinfold serve --state "+quote(dir)+" --quarantine"))
}

// closed is the error for everything after Close.
func closed() *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeShuttingDown, Message: "the store is closed"}
}
