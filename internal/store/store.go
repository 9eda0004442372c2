// Package store keeps what must outlive the server in one SQLite database:
// sandboxes, runs and their results, usage, tenants and keys. It implements
// records.Store and access.Store.
//
// What a method has returned from survives the death of the process, at any
// instant. It survives the death of the machine up to the last checkpoint, at
// worst: the newest entries may be missing then, and nothing is half there.
//
// It decides nothing: what a state means, who may see what, and when something
// is too old are its callers' business. It never repairs by forgetting: a
// damaged database is refused, and a damaged row is put aside.
package store

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"pinfold/sandbox"
)

const (
	readers = 4
	// Whoever makes a key holds the lock for less than this.
	lockWait = 500 * time.Millisecond
	// A log of this many pages (80 MiB) is written back by the writer itself,
	// should the background not keep up.
	walPages = "wal_autocheckpoint(20000)"
)

// Store is an open database. It is safe for concurrent use. Close it.
type Store struct {
	dir  string
	lock *os.File // nil: a server has it
	log  *slog.Logger
	now  func() time.Time

	writer *sql.DB // one connection, used by the goroutine write
	reader *sql.DB
	maint  *sql.DB // one connection, for checkpoints

	room sync.Mutex // held while the disk is tried

	mu       sync.RWMutex
	prepared map[string]*sql.Stmt // of reader, by text

	ops     chan op
	grown   chan struct{} // the log has grown: write it back
	closing chan struct{}
	close   func() error
	wg      sync.WaitGroup
}

// Option changes how a store works.
type Option func(*Store)

// WithLog tells where damaged rows are reported. Without it nobody hears of
// them, apart from whoever asks for the object.
func WithLog(l *slog.Logger) Option { return func(s *Store) { s.log = l } }

// WithClock sets the clock by which runs finish, for tests.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// Open opens the database of a state directory for a server, and makes both
// where there are none. One process can have a directory open like this: a
// second one gets code conflict. A database that is damaged (state_corrupt) or
// newer than this program (config_invalid) is refused and left as it is.
func Open(ctx context.Context, dir string, options ...Option) (*Store, error) {
	return open(ctx, dir, true, options)
}

// Attach opens the database beside a server, or without one, to read it or to
// change keys and tenants. It does not look for damage; see Check.
func Attach(ctx context.Context, dir string, options ...Option) (*Store, error) {
	return open(ctx, dir, false, options)
}

func open(ctx context.Context, dir string, exclusive bool, options []Option) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, unusable(err)
	}
	s := &Store{
		dir: dir, log: slog.New(slog.DiscardHandler), now: time.Now, prepared: make(map[string]*sql.Stmt),
		ops: make(chan op), grown: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	for _, o := range options {
		o(s)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(err)
	}
	s.lock, err = acquire(dir, lockWait)
	if err != nil && (exclusive || sandbox.AsError(err).Code != sandbox.CodeConflict) {
		return nil, err
	}
	if err := s.start(ctx, exclusive); err != nil {
		return nil, errors.Join(s.fault("opening "+databaseFile(dir), err), s.release())
	}
	if !exclusive { // a server may start from now on
		s.unlock()
	}
	s.close = sync.OnceValue(s.shutDown)
	return s, nil
}

// start opens the connections, and brings the schema up to date when the
// directory is ours.
func (s *Store) start(ctx context.Context, check bool) error {
	if s.lock != nil {
		if err := prepareDir(s.dir); err != nil {
			return err
		}
		if err := create(ctx, s.dir); err != nil {
			return err
		}
	}
	if err := s.connect(); err != nil {
		return err
	}
	c, err := s.writer.Conn(ctx)
	if err != nil {
		return err
	}
	missing, err := checkSchema(ctx, c, databaseFile(s.dir))
	if err == nil && check {
		err = s.quickCheck(ctx, c)
	}
	if err == nil {
		err = s.modernize(ctx, c, missing)
	}
	if err == nil && check {
		err = s.compareSchema(ctx, c)
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	// The work goes on when the context in which it was opened has ended.
	w := &session{conn: c, prepared: make(map[string]*sql.Stmt)}
	s.wg.Go(func() { s.serve(context.WithoutCancel(ctx), w) })
	s.wg.Go(func() { s.checkpoints(context.WithoutCancel(ctx)) })
	return nil
}

func (s *Store) modernize(ctx context.Context, c *sql.Conn, missing int) error {
	if missing > 0 && s.lock == nil {
		return &sandbox.Error{
			Code: sandbox.CodeConfigInvalid, Message: "the server in " + s.dir + " is older than this program",
			Hint: "restart it with this version first",
		}
	}
	if _, err := c.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	return migrate(ctx, c, missing)
}

func (s *Store) connect() error {
	for _, c := range []struct {
		db      **sql.DB
		n       int
		pragmas []string
	}{
		{&s.writer, 1, []string{"synchronous(NORMAL)", "cache_size(-8192)", "journal_size_limit(67108864)", walPages}},
		{&s.maint, 1, []string{"synchronous(NORMAL)", "cache_size(-256)"}},
		{&s.reader, min(readers, max(2, runtime.NumCPU())), []string{"query_only(1)", "cache_size(-2048)"}},
	} {
		name, err := dsn(databaseFile(s.dir), c.pragmas...)
		if err != nil {
			return err
		}
		db, err := sql.Open("sqlite", name)
		if err != nil {
			return err
		}
		db.SetMaxOpenConns(c.n)
		db.SetMaxIdleConns(c.n)
		*c.db = db
	}
	return nil
}

// quickCheck looks for damage in the structure of the file.
func (s *Store) quickCheck(ctx context.Context, c *sql.Conn) error {
	return s.pragmaCheck(ctx, c, "PRAGMA quick_check(5)")
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (s *Store) pragmaCheck(ctx context.Context, c querier, pragma string) error {
	lines, err := textColumn(ctx, c, pragma)
	if err != nil {
		return err
	}
	if len(lines) == 1 && lines[0] == "ok" {
		return nil
	}
	return corrupt(s.dir, sandbox.SafeText(strings.Join(lines, "; "), 300), nil)
}

func textColumn(ctx context.Context, c querier, query string) ([]string, error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer drop(rows)
	var all []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		all = append(all, line)
	}
	return all, rows.Err()
}

// stmt returns a reading statement, prepared once. Only texts of this package
// come here: those that are built for one question would pile up.
func (s *Store) stmt(ctx context.Context, text string) (*sql.Stmt, error) {
	s.mu.RLock()
	st := s.prepared[text]
	s.mu.RUnlock()
	if st != nil {
		return st, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.prepared[text]; st != nil {
		return st, nil
	}
	if s.prepared == nil {
		return nil, closed()
	}
	st, err := s.reader.PrepareContext(ctx, text)
	if err == nil {
		s.prepared[text] = st
	}
	return st, err
}

// Dir returns the state directory, absolute.
func (s *Store) Dir() string { return s.dir }

// Close ends what is under way, writes the log back and gives the directory
// free. Later calls of other methods fail with code shutting_down.
func (s *Store) Close() error { return s.close() }

func (s *Store) shutDown() error {
	close(s.closing)
	s.wg.Wait()
	return s.release()
}

// release gives back whatever has been opened so far.
func (s *Store) release() error {
	var errs []error
	s.mu.Lock()
	for _, st := range s.prepared {
		errs = append(errs, st.Close())
	}
	s.prepared = nil
	s.mu.Unlock()
	// The last one to close writes the log back, which needs a writer.
	for _, db := range []*sql.DB{s.reader, s.maint, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	s.unlock()
	if err := errors.Join(errs...); err != nil {
		return s.fault("closing the database", err)
	}
	return nil
}

// drop closes what was only read, or is given up: nothing is lost with it.
func drop(c io.Closer) { _ = c.Close() }

func (s *Store) unlock() {
	if s.lock != nil {
		drop(s.lock)
		s.lock = nil
	}
}
