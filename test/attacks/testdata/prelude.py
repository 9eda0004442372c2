import ctypes, errno, os, signal, stat, sys, time
JAIL = sys.argv[1:2] == ["jail"]
if JAIL: del sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def name(e): return errno.errorcode.get(e, str(e))
def say(key, value): print(key, value, flush=True)
def call(number, *args):
    """The result of a system call, or the name of its error."""
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(number), *[ctypes.c_void_p(a & (1 << 64) - 1) if isinstance(a, int) else a for a in args])
    return "ok" if r >= 0 else name(ctypes.get_errno())
def attempt(key, f, *args):
    try:
        r = f(*args)
        say(key, "ok" if r is None or not isinstance(r, (str, int)) else r)
    except OSError as e: say(key, name(e.errno))
    except Exception as e: say(key, type(e).__name__)
def child(f):
    """What becomes of f in a process of its own: its text, or a signal."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try: t = str(f())
        except OSError as e: t = name(e.errno)
        except BaseException as e: t = type(e).__name__
        os.write(w, t.encode()); os._exit(0)
    os.close(w)
    text = b""
    while (b := os.read(r, 4096)): text += b
    os.close(r)
    _, status = os.waitpid(pid, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else text.decode()
