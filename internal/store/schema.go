package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"pinfold/sandbox"
)

// applicationID marks a file as ours ("PFLD"), so that another program's
// database is not taken for an empty one.
const applicationID = 0x50464C44

// migrations lead from an empty file to the newest schema. A released entry
// never changes: a database remembers how many it has seen (user_version).
func migrations() []string {
	return []string{schema1, schema2, schema3, schema4, schema5, schema6, schema7, schema8}
}

// Objects stand under (tenant, id), so that no statement can find another
// tenant's. Results are apart from runs: lists never read them.
const schema1 = `
CREATE TABLE sandboxes (
	seq        INTEGER PRIMARY KEY,
	tenant     TEXT NOT NULL,
	id         TEXT NOT NULL,
	created_at INTEGER NOT NULL, -- nanoseconds since 1970
	ended_at   INTEGER,          -- NULL until it has ended
	state      TEXT NOT NULL,
	metadata   TEXT NOT NULL,    -- JSON
	info       TEXT NOT NULL,    -- JSON
	UNIQUE (tenant, id)
) STRICT;
CREATE INDEX sandboxes_listed ON sandboxes (tenant, created_at, id);
CREATE INDEX sandboxes_living ON sandboxes (seq) WHERE ended_at IS NULL;
CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE runs (
	seq             INTEGER PRIMARY KEY,
	tenant          TEXT NOT NULL,
	id              TEXT NOT NULL,
	created_at      INTEGER NOT NULL,
	finished_at     INTEGER,     -- NULL while it is under way
	language        TEXT NOT NULL,
	metadata        TEXT NOT NULL,
	idempotency_key TEXT,        -- NULL: none
	digest          TEXT NOT NULL,
	status          TEXT NOT NULL,
	cause           TEXT NOT NULL,
	UNIQUE (tenant, id)
) STRICT;
CREATE INDEX runs_listed ON runs (tenant, created_at, id);
CREATE UNIQUE INDEX runs_once ON runs (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE results (
	run  INTEGER PRIMARY KEY REFERENCES runs (seq) ON DELETE CASCADE,
	body TEXT NOT NULL -- JSON
) STRICT;

CREATE TABLE usage (
	tenant         TEXT NOT NULL,
	day            TEXT NOT NULL, -- 2006-01-02, UTC
	runs           INTEGER NOT NULL,
	sandboxes      INTEGER NOT NULL,
	cpu_ms         INTEGER NOT NULL,
	wall_ms        INTEGER NOT NULL,
	memory_mb_ms   INTEGER NOT NULL,
	output_bytes   INTEGER NOT NULL,
	artifact_bytes INTEGER NOT NULL,
	PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE tenants (
	name       TEXT PRIMARY KEY,
	created_at INTEGER NOT NULL,
	quota      TEXT NOT NULL -- JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
	id           TEXT PRIMARY KEY,
	tenant       TEXT NOT NULL REFERENCES tenants (name),
	name         TEXT NOT NULL,
	scopes       TEXT NOT NULL, -- separated by spaces
	hash         BLOB NOT NULL, -- SHA-256; the key itself is nowhere
	created_at   INTEGER NOT NULL,
	expires_at   INTEGER,
	revoked_at   INTEGER,
	last_used_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_listed ON keys (tenant, created_at, id);

CREATE TABLE quarantined_rows (
	seq    INTEGER PRIMARY KEY,
	at     INTEGER NOT NULL,
	source TEXT NOT NULL, -- the table that it was in
	tenant TEXT NOT NULL,
	id     TEXT NOT NULL,
	reason TEXT NOT NULL,
	fields TEXT NOT NULL, -- the other columns, quoted as SQL
	body   BLOB           -- the large one as it was
) STRICT;
`

// Runs that are under way are few among those that are kept.
const schema2 = `
CREATE INDEX runs_unfinished ON runs (tenant, created_at, id) WHERE finished_at IS NULL;
`

// What is needed to go on with a sandbox whose machine outlives the server.
const schema3 = `
ALTER TABLE sandboxes ADD COLUMN machine TEXT; -- JSON; NULL: none, or it has ended
`

// References to snapshots, which drivers keep.
const schema4 = `
CREATE TABLE snapshots (
	tenant     TEXT NOT NULL,
	id         TEXT NOT NULL,
	sandbox    TEXT NOT NULL, -- which may be gone
	driver     TEXT NOT NULL,
	template   TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	bytes      INTEGER NOT NULL,
	reference  TEXT NOT NULL, -- the driver's own
	PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
`

// What is known of a snapshot is more than a reference; nothing was ever written before.
const schema5 = `
DROP TABLE snapshots;
CREATE TABLE snapshots (
	tenant     TEXT NOT NULL,
	id         TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	body       TEXT NOT NULL, -- JSON
	PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
`

// A key can have a list of endpoints.
const schema6 = `
ALTER TABLE keys ADD COLUMN allow TEXT; -- JSON; NULL: it narrows nothing
`

// A key can be for some profiles only.
const schema7 = `
ALTER TABLE keys ADD COLUMN profiles TEXT; -- JSON; NULL: it confines nothing
`

// What a policy would have looked at, and what a scan saw.
const schema8 = `
ALTER TABLE runs ADD COLUMN facts TEXT; -- JSON; NULL: they are not known
ALTER TABLE runs ADD COLUMN seen TEXT;  -- JSON; NULL: nobody has looked
CREATE INDEX runs_newest ON runs (created_at);
`

// create makes a database where there is none. It gets its name when it is
// whole, so that nobody ever meets half of one. Nobody else may read it.
func create(ctx context.Context, dir string) error {
	if exists(databaseFile(dir)) {
		return nil
	}
	unfinished := databaseFile(dir) + ".new"
	for _, suffix := range []string{"", "-journal"} {
		if err := os.Remove(unfinished + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unusable(err)
		}
	}
	f, err := os.OpenFile(unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return unusable(err)
	}
	drop(f)
	if err := fillNew(ctx, unfinished); err != nil {
		return err
	}
	if err := os.Rename(unfinished, databaseFile(dir)); err != nil {
		return unusable(err)
	}
	return nil
}

func fillNew(ctx context.Context, file string) error {
	name, err := dsn(file)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return err
	}
	defer drop(db)
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer drop(c)
	return migrate(ctx, c, len(migrations()))
}

// compareSchema says when the tables are not those that the migrations make: a
// wrong byte in their descriptions is found by no other check.
func (s *Store) compareSchema(ctx context.Context, c *sql.Conn) error {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer drop(db)
	fresh, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer drop(fresh)
	if err := migrate(ctx, fresh, len(migrations())); err != nil {
		return err
	}
	const tables = "SELECT type||' '||name||' '||tbl_name||' '||coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name"
	want, err := textColumn(ctx, fresh, tables)
	if err != nil {
		return err
	}
	have, err := textColumn(ctx, c, tables)
	if err != nil {
		return err
	}
	if !slices.Equal(have, want) {
		return corrupt(s.dir, "its tables are not those that it was made with", nil)
	}
	return nil
}

// schemaOf reads which schema a database has. Foreign says that the file is
// some other program's.
func schemaOf(ctx context.Context, c *sql.Conn) (version int, foreign bool, err error) {
	var id, tables int
	if err := c.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, false, err
	}
	if err := c.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return 0, false, err
	}
	if err := c.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return 0, false, err
	}
	return version, id != applicationID && (version != 0 || tables != 0), nil
}

// checkSchema says whether this program can work with the database. Missing is
// how many migrations it lacks.
func checkSchema(ctx context.Context, c *sql.Conn, file string) (missing int, err error) {
	version, foreign, err := schemaOf(ctx, c)
	newest := len(migrations())
	switch {
	case err != nil:
		return 0, err
	case foreign:
		return 0, (&sandbox.Error{Code: sandbox.CodeStateCorrupt, Message: file + " is another program's database"}).
			WithAdvice(sandbox.Advise("set %s to an empty directory", sandbox.Config("state")))
	case version > newest:
		return 0, (&sandbox.Error{
			Code:    sandbox.CodeConfigInvalid,
			Message: fmt.Sprintf("%s has schema %d, and this program knows schemas up to %d: a newer pinfold has used it", file, version, newest),
		}).WithAdvice(sandbox.Advise("start the newer pinfold, or set %s to another directory", sandbox.Config("state")))
	}
	return newest - max(version, 0), nil
}

// migrate brings the database to the newest schema: wholly or not at all.
func migrate(ctx context.Context, c *sql.Conn, missing int) error {
	if missing == 0 {
		return nil
	}
	all := migrations()
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, m := range all[len(all)-missing:] {
		if _, err := tx.ExecContext(ctx, m); err != nil {
			return rollback(tx, err)
		}
	}
	for _, pragma := range []string{fmt.Sprintf("PRAGMA application_id = %d", applicationID), fmt.Sprintf("PRAGMA user_version = %d", len(all))} {
		if _, err := tx.ExecContext(ctx, pragma); err != nil {
			return rollback(tx, err)
		}
	}
	return tx.Commit()
}

// rollback undoes a transaction that failed with err, which matters more than
// how the undoing went.
func rollback(tx *sql.Tx, err error) error {
	_ = tx.Rollback()
	return err
}
