# For a program that prints many lines in a short time: it gets full buffers, as in any
# pipe, and after TICK seconds a thread of ours writes what is in them and has everything
# written line by line again. The thread lives as long as the program is in a hurry, and
# LINGER seconds longer. Before what others could notice (a fork, another program, what
# goes to standard error, the end) all that was printed is written. A program with threads
# is not let hurry: those that fill one buffer lose lines to each other, in any Python.
#
# Our own code runs with all signals blocked: what a handler of the program's raises comes
# before or after it, in the program, and is never taken for an error of ours. Nothing here
# holds the stream, so that it is let go, written and closed as any other.
import _thread
import atexit
import io
import os
import sys
from _signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask
from _weakref import ref

TICK, LINGER = 0.01, 0.5
NOTICED = {
    "os.exec", "os.kill", "os.posix_spawn", "os.system", "signal.pthread_kill", "subprocess.Popen", "time.sleep",
    "_thread.start_new_thread", "_thread.start_joinable_thread",
}


FORKS = {"os.fork", "os.forkpty"}
Text, SIGNALS = harness["TextIOWrapper"], harness["SIGNALS"]


def hurry(text, buffer):
    """Let a text stream hurry. Signals are blocked."""
    if text._hurry is None:
        text._hurry, text._calm = start(text, buffer)
        text.__class__ = Hurried
    text._hurry()


class Blocked:
    """All signals of this thread, blocked for a moment."""

    def __enter__(self):
        self.usual = pthread_sigmask(SIG_BLOCK, SIGNALS)

    def __exit__(self, *_):
        pthread_sigmask(SIG_SETMASK, self.usual)


class Hurried(Text):
    """One that nobody writes bytes to besides, and that is open: then it need not ask
    what is below it for each piece. It becomes a plain one before that changes."""

    __module__, closed = "_io", False

    @property
    def buffer(self):
        return self._plain().buffer

    def detach(self):
        return self._plain().detach()

    def close(self):
        self._plain().close()

    def _plain(self):
        self._calm()  # bytes that the program writes come after what it has printed
        self.__class__, self._looked = Text, True
        return self


Hurried.__name__ = Hurried.__qualname__ = Text.__name__


def start(text, buffer):
    """Return what lets a text stream hurry, and what calms it."""
    io.TextIOWrapper.buffer.__get__(text)  # fails where the program has taken it away
    whose, by_line, leave, ending = ref(text), buffer.flush, os._exit, False
    hurries, thread, mutex = False, None, _thread.RLock()
    error = getattr(sys.__stderr__, "buffer", None)
    write_errors = error.flush if type(error) is io.BufferedWriter else None

    def hurry():
        nonlocal hurries, thread
        with mutex:
            if hurries or ending or _thread._count() > (thread is not None):
                return
            if thread is None or not thread.again():
                try:
                    thread = Thread(calm, mutex)
                except Exception:  # there may be no more threads
                    whose()._looked = True
                    return
            hurries, os._exit = True, calm_leave
            if write_errors:
                error.flush = calm_errors
            del buffer.flush
            whose().reconfigure(line_buffering=False)

    def calm():
        with mutex:
            if not hurries:
                return
        with Blocked():
            calm_now()

    def calm_now():
        nonlocal hurries
        with mutex:
            if not hurries:
                return
            hurries, buffer.flush = False, by_line
            try:
                text = whose()
                text.reconfigure(line_buffering=True)
                text.flush()  # what has come while that was on its way
            except (AttributeError, OSError, ValueError):
                pass  # the program meets it with its next line, or at its end
            finally:  # not before: who leaves, or writes an error, while we write waits for mutex
                os._exit = leave
                if write_errors:
                    del error.flush

    def calm_leave(status):
        calm()
        leave(status)

    def calm_errors():
        try:
            calm()
        finally:
            write_errors()

    def calm_event(event, _):
        if event in FORKS:
            stop()  # earlier than what is called before a fork: there Python drops what handlers raise
        elif event in NOTICED:
            calm()

    def stop():
        nonlocal thread
        with Blocked():
            calm_now()
            with mutex:
                ended, thread = thread, None
            if ended:
                ended.end()

    def renew():
        nonlocal mutex
        mutex = _thread.RLock()

    def last():
        nonlocal ending
        ending = True
        stop()

    os.register_at_fork(before=stop, after_in_child=renew)
    sys.addaudithook(calm_event)
    atexit.register(last)
    return hurry, calm


class Thread:
    """Calls calm soon after it was made, and soon after each call of again. It takes no
    signals."""

    def __init__(self, calm, mutex):
        self.calm, self.mutex, self.id, self.gone = calm, mutex, None, False
        self.bell, self.ended = _thread.allocate_lock(), _thread.allocate_lock()
        self.bell.acquire()
        self.ended.acquire()
        _thread.start_new_thread(self.run, ())  # with all signals blocked, as they are here

    def run(self):
        self.id = _thread.get_native_id()
        try:
            while not self.gone:
                self.bell.acquire(timeout=TICK)
                self.calm()
                if not self.bell.acquire(timeout=LINGER):
                    with self.mutex:
                        self.gone = not self.bell.acquire(False)
        finally:
            self.ended.release()

    def again(self):
        """Ring, with mutex held. Say whether somebody hears it."""
        if not self.gone and self.bell.locked():
            self.bell.release()
        return not self.gone

    def end(self):
        """Return when the kernel does not know the thread any more."""
        self.gone = True
        if self.bell.locked():
            self.bell.release()
        self.ended.acquire()
        for _ in range(1000):
            try:
                os.stat("/proc/self/task/%d" % self.id)
            except OSError:
                return
            os.sched_yield()
