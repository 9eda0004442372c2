set -euo pipefail
sqlite3 all.db <<'SQL'
PRAGMA journal_mode = WAL;
CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT i, i * i AS q FROM n;
CREATE INDEX by_q ON t(q);
SELECT count(*), sum(q) FROM t WHERE q BETWEEN 100 AND 1000000;
VACUUM;
PRAGMA integrity_check;
SQL
sqlite3 all.db .dump | sqlite3 copy.db && sqlite3 copy.db 'SELECT max(q) FROM t'
