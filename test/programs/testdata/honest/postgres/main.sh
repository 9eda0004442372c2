# A whole database server, its own processes, shared memory and sockets.
set -euo pipefail
bin=$(dirname "$(ls /usr/lib/postgresql/*/bin/initdb | tail -1)")
"$bin/initdb" -D data -A trust -U me --no-sync >/dev/null
"$bin/pg_ctl" -D data -w -o "-k $PWD -c listen_addresses= -c shared_buffers=16MB -c fsync=off" -l log start >/dev/null
trap '"$bin/pg_ctl" -D data -m immediate stop >/dev/null' EXIT
export PGHOST=$PWD PGUSER=me PGDATABASE=postgres
"$bin/psql" -qAt <<'SQL'
CREATE TABLE t AS SELECT i, i * i AS q FROM generate_series(1, 20000) i;
CREATE INDEX ON t (q);
SELECT count(*), sum(q) FROM t WHERE q % 2 = 0;
SQL
for n in 1 2 3; do "$bin/psql" -qAt -c "BEGIN; UPDATE t SET q = q + 1 WHERE i = $n; COMMIT" & done; wait %1 %2 %3 || true
"$bin/psql" -qAt -c 'SELECT sum(q) FROM t WHERE i <= 3'
