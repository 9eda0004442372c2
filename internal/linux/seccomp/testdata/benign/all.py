"""Threads, processes, sockets, files: what ordinary Python programs do."""
import asyncio, ctypes.util, fcntl, getpass, json, locale, mmap, multiprocessing, os, pathlib, platform, random
import resource, select, shutil, signal, socket, sqlite3, subprocess, sys, tempfile, threading, time, uuid, zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import shared_memory


def square(x):
    return x * x


def servers():
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            server = socket.create_server((host, 0), family=family)
        except OSError as e:
            assert family == socket.AF_INET6, e
            continue
        with server, socket.create_connection(server.getsockname()[:2]) as c:
            peer, _ = server.accept()
            peer.sendall(b"hello")
            assert c.recv(5) == b"hello"
            peer.close()
    assert socket.getaddrinfo("127.0.0.1", 80)
    assert socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    a, b = socket.socketpair()
    a.send(b"x")
    assert b.recv(1) == b"x"
    with tempfile.TemporaryDirectory() as d:
        u = socket.socket(socket.AF_UNIX)
        u.bind(d + "/s")
        u.listen()


async def echo():
    async def handle(r, w):
        w.write(await r.readline())
        await w.drain()
        w.close()
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
    w.write(b"line\n")
    assert await r.readline() == b"line\n"
    w.close()
    p = await asyncio.create_subprocess_exec("sh", "-c", "echo child", stdout=subprocess.PIPE)
    assert (await p.communicate())[0] == b"child\n"
    server.close()


def files(d):
    p = pathlib.Path(d)
    (p / "a").write_text("data" * 10000)
    shutil.copy2(p / "a", p / "b")
    shutil.copytree(d, d + "/sub", ignore=shutil.ignore_patterns("sub"))
    os.symlink("a", p / "l"), os.link(p / "a", p / "h"), os.mkfifo(p / "f")
    os.utime(p / "a", (1, 1)), os.chmod(p / "a", 0o600), os.truncate(p / "a", 5)
    with open(p / "a", "r+b") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        os.fsync(f.fileno())
        mmap.mmap(f.fileno(), 0).close()
    os.sync()
    shutil.make_archive(d + "/z", "zip", d + "/sub")
    zipfile.ZipFile(d + "/z.zip").testzip()
    shutil.disk_usage(d), list(os.scandir(d)), os.statvfs(d)
    db = sqlite3.connect(d + "/db")
    db.execute("pragma journal_mode=wal")
    db.execute("create table t(x)")
    db.executemany("insert into t values(?)", [(i,) for i in range(100)])
    db.commit()
    assert db.execute("select count(*) from t").fetchone() == (100,)


def system():
    platform.platform(), os.cpu_count(), os.sched_getaffinity(0), resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0)), os.getloadavg(), os.getpriority(os.PRIO_PROCESS, 0), os.nice(1)
    uuid.uuid1(), uuid.uuid4(), random.SystemRandom().random(), ctypes.util.find_library("c"), locale.getlocale()
    time.clock_gettime(time.CLOCK_BOOTTIME), os.urandom(8), os.memfd_create("m"), os.eventfd(0), os.pidfd_open(os.getpid())
    signal.signal(signal.SIGALRM, lambda *_: None), signal.setitimer(signal.ITIMER_REAL, 0.01), signal.pause()
    signal.sigtimedwait([signal.SIGUSR1], 0)
    select.epoll().close()


if __name__ == "__main__":
    with ThreadPoolExecutor(8) as t, ProcessPoolExecutor(2) as p:
        assert list(t.map(square, range(50))) == list(p.map(square, range(50)))
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(square, [2, 3]) == [4, 9]
    m = shared_memory.SharedMemory(create=True, size=4096)
    m.close(), m.unlink()
    q = multiprocessing.Queue()
    multiprocessing.Process(target=q.put, args=(1,)).start()
    assert q.get() == 1
    assert subprocess.run(["sh", "-c", "cat; exit 3"], input=b"in", capture_output=True).returncode == 3
    subprocess.run(["true"], preexec_fn=os.setsid, start_new_session=False, close_fds=True, check=True)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    servers()
    asyncio.run(echo())
    with tempfile.TemporaryDirectory() as d:
        files(d)
    system()
    print("benign")
