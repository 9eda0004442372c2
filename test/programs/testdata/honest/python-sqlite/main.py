"""Several processes write to one SQLite database in WAL mode."""
import multiprocessing
import sqlite3


def write(part):
    db = sqlite3.connect("all.db", timeout=60)
    for n in range(50):
        with db:
            db.execute("INSERT INTO t VALUES (?, ?)", (part, n))
    db.close()


if __name__ == "__main__":
    db = sqlite3.connect("all.db")
    print(db.execute("PRAGMA journal_mode = WAL").fetchone())
    db.execute("CREATE TABLE t (part INTEGER, n INTEGER)")
    db.commit()
    parts = [multiprocessing.Process(target=write, args=(part,)) for part in range(4)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    print(db.execute("SELECT count(*), sum(n), count(DISTINCT part) FROM t").fetchone())
    print(db.execute("PRAGMA integrity_check").fetchone())
