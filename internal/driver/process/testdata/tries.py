# What a plain process can do to the processes, files, sockets and memory of its user.
# Each try must succeed where nothing stops it, and undo what it did.
import ctypes, errno, json, os, resource, signal, socket, sys

pid, dir, abstract, port, key = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
secret, moved, named = dir + "/secret", dir + "/moved", dir + "/socket"
libc = ctypes.CDLL(None, use_errno=True)
found = {}


def call(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def attempt(name, f, *args):
    try:
        f(*args)
        found[name] = "ok"
    except OSError as e:
        found[name] = errno.errorcode.get(e.errno, str(e))
    except Exception as e:
        found[name] = repr(e)


def read(path):
    with open(path, "rb") as f:
        f.read(1)


def write(path):
    with open(path, "r+b") as f:
        f.write(b"s")


def make(path):
    open(path, "x").close()
    os.remove(path)


def make_dir(path):
    os.mkdir(path)
    os.rmdir(path)


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.connect(address)


def datagram():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.close(), b.close()


def rename():
    os.rename(moved, moved + ".away")
    os.rename(moved + ".away", moved)


def link(to):
    os.link(secret, to)
    os.remove(to)


def shared_memory():
    at = call(libc.shmget(key, 4096, 0))
    libc.shmat.restype = ctypes.c_void_p
    if libc.shmat(at, None, 0) == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "refused")


def semaphores():
    call(libc.semctl(call(libc.semget(0, 1, 0o1600)), 0, 0))


# processes
attempt("signal", os.kill, pid, 0)
attempt("stop", os.kill, pid, signal.SIGSTOP)
attempt("go on", os.kill, pid, signal.SIGCONT)
attempt("pidfd signal", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGCONT))
attempt("signal to all of a group", os.killpg, pid, signal.SIGCONT)
attempt("limits", resource.prlimit, pid, resource.RLIMIT_CORE, (0, 0))
attempt("priority", os.setpriority, os.PRIO_PROCESS, pid, 1)
attempt("processors", lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)))
attempt("class", lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))
attempt("input and output priority", lambda: call(libc.syscall({"x86_64": 251, "aarch64": 30}[os.uname().machine], 1, pid, 2 << 13 | 5)))
attempt("environment", read, f"/proc/{pid}/environ")
attempt("program", os.readlink, f"/proc/{pid}/exe")
attempt("working directory", os.readlink, f"/proc/{pid}/cwd")
attempt("descriptors", os.readlink, f"/proc/{pid}/fd/0")
attempt("maps", read, f"/proc/{pid}/maps")

# files
attempt("list", os.listdir, dir)
attempt("read", read, secret)
attempt("write", write, secret)
attempt("truncate", os.truncate, secret, 6)
attempt("mode", os.chmod, secret, 0o777)
attempt("time", os.utime, secret, (1, 1))
attempt("owner", os.chown, secret, os.stat(secret).st_uid, -1)
attempt("make a file", make, dir + "/made")
attempt("make a directory", make_dir, dir + "/made")
attempt("move", rename)
attempt("link", link, os.path.join(dir if dir in os.path.abspath(__file__) else os.getcwd(), "link"))
attempt("shared memory by name", make, f"/dev/shm/pinfold-try-{os.getpid()}")
attempt("temporary file", make, f"/tmp/pinfold-try-{os.getpid()}")

# sockets and shared memory
attempt("tcp", connect, socket.AF_INET, ("127.0.0.1", port))
attempt("unix socket with a name", connect, socket.AF_UNIX, named)
attempt("abstract unix socket", connect, socket.AF_UNIX, "\0" + abstract)
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close())
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close())
attempt("datagrams", datagram)
attempt("shared memory by key", shared_memory)
attempt("semaphores", semaphores)

# the kernel
attempt("namespace", lambda: call(libc.unshare(0x10000000)))
print(json.dumps(found))
