# What interpreters have in common that are copies of one which has loaded its modules:
# forked from a zygote (pinfold_zygote.py), or in copies of the machine in which it waits
# (pinfold_copied.py). Each begins with what makes it its own; and the one before them goes
# through such a life, so that nothing is done for the first time in a copy.
from pinfold_atfork import hooks
import pinfold_warm

import ctypes
import gc
import json
import os
import random
import sys
import threading
from keyword import iskeyword

before_fork, after_fork = ctypes.pythonapi.PyOS_BeforeFork, ctypes.pythonapi.PyOS_AfterFork_Child
SUPPORT = os.path.dirname(os.path.abspath(__file__))


class Unfit(Exception):
    """This process cannot be copied."""


def begin(numbers):
    """Do what a copy does first. Return what it is to run."""
    after_fork()
    begin_anew(numbers)
    return pinfold_warm.receive()


class Stdin:
    """A program of our own on the standard input, as the host sends one."""

    def __init__(self, modules, value=False, results=True):
        named = [name for name in modules if not any(map(iskeyword, name.split(".")))]  # loaded, but no import can say it
        code = "".join("import " + name + "\n" for name in named) + "print(1)\n" + value * "[1][0]\n"
        job = {"file": "/tmp/rehearsal.py", "code": code, "args": [], "env": {}, "allowed_imports": None, "results": results}
        program = json.dumps(job).encode()
        read, write = os.pipe()
        os.write(write, b"%08x" % len(program) + program)
        os.close(write)
        self.usual = os.dup(0)
        os.dup2(read, 0)
        os.close(read)

    def close(self):
        os.dup2(self.usual, 0)
        os.close(self.usual)


def go_through(modules):
    """Go through the life of a copy, so that what is compiled, cached and specialised on
    the way is theirs as well. Return what begins random numbers anew."""
    before_fork()
    after_fork()  # all locks are new now
    hooks.close()
    kept, numbers = (sys.modules["__main__"], sys.argv, list(sys.path)), []
    for n in range(REHEARSALS):
        if n == REHEARSALS // 2:  # all is loaded that there will be
            gc.collect()
            numbers = generators()
        stdin = Stdin(modules, n % 2 == 0, n % 4 != 0)
        hooks.quiet = True
        before_fork()
        pinfold_warm.become(begin(numbers))
        sys.stdout.flush()
        stdin.close()
    sys.modules["__main__"], sys.argv, sys.path[:] = kept
    for name in os.listdir(SUPPORT):
        if name == "results.jsonl":
            os.unlink(SUPPORT + "/" + name)
    os.unlink("/tmp/rehearsal.py")
    return numbers


REHEARSALS = 16


def generators():
    """Return what begins anew all random numbers that modules have begun, also
    those that they began with a number of their own: nobody can tell."""
    anew = []
    arrays = sys.modules.get("numpy.random")
    for o in gc.get_objects():
        kind = type(o)
        if issubclass(kind, random.Random) and o is not random._inst and not issubclass(kind, random.SystemRandom):
            anew.append(lambda o=o: random.Random.seed(o))
        elif arrays and kind is arrays.MT19937 and state_of(o):
            anew.append(lambda at=state_of(o): ctypes.memmove(at, os.urandom(MT19937_KEY), MT19937_KEY))
        elif arrays and issubclass(kind, (arrays.BitGenerator, arrays.SeedSequence)):
            anew.append(lambda o=o, kind=kind: kind.__init__(o))
        elif arrays and issubclass(kind, arrays.RandomState):  # it keeps every second number; its generator is another object
            o.set_state(dict(o.get_state(legacy=False), has_gauss=0, gauss=0.0))
    if "_sqlite3" in sys.modules:
        try:
            randomness = ctypes.CDLL(sys.modules["_sqlite3"].__file__).sqlite3_randomness
            anew.append(lambda: randomness(0, None))
        except (AttributeError, OSError):
            raise Unfit("random numbers of this sqlite cannot be begun anew")
    return anew


MT19937_KEY = 624 * 4


def state_of(generator):
    """Return where the key of numpy's usual generator lies, or None. Random bytes
    put there do what making it anew would do, by writing to a page, not to a hundred."""
    at = generator.ctypes.state_address
    return at if ctypes.string_at(at, MT19937_KEY) == generator.state["state"]["key"].tobytes() else None


def begin_anew(generators):
    """Make a copy's own what it must not share with its siblings. Python itself
    does so for the module random, and OpenSSL for its own numbers."""
    for begin in generators:
        begin()
    threading.main_thread()._set_native_id()  # Python forgets to
    loaded = sys.modules.get
    if loaded("uuid"):  # its library keeps a node, a sequence and a time
        sys.modules["uuid"]._generate_time_safe = sys.modules["uuid"]._last_timestamp = None
        sys.modules["uuid"]._node = int.from_bytes(os.urandom(6), "big") | 1 << 40
    if loaded("tempfile"):
        sys.modules["tempfile"]._name_sequence = None
    if loaded("multiprocessing.process"):
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
