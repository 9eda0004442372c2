# A Python interpreter that waits for one program in a machine of which copies are made
# while it waits. It loads the modules that it is told, goes through the life of a copy,
# and says that it is ready; then the machine is copied. In each copy the host first has it
# begin anew, which it asks for by a handover of no length, and then hands the program over.
import pinfold_harness  # first: it notes what Python itself has loaded
from pinfold_atfork import hooks  # second: it keeps what asks to be called around a fork
import pinfold_warm
from pinfold_siblings import Unfit, before_fork, begin, go_through

import gc
import os
import sys
import threading


class Silence:
    """The standard output and error are nobody's."""

    def __enter__(self):
        self.usual = [os.dup(1), os.dup(2)]
        nowhere = os.open("/dev/null", os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def __exit__(self, *_):
        sys.stdout.flush()
        sys.stderr.flush()
        for fd in (1, 2):
            os.dup2(self.usual[fd - 1], fd)
            os.close(self.usual[fd - 1])


def prepare(modules):
    """Load the modules and rehearse. Return what begins random numbers anew."""
    sys.stdout = sys.__stdout__ = pinfold_harness.by_line(sys.stdout)
    pinfold_warm.load(modules)
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        raise Unfit("a module has started a thread")
    with Silence():
        numbers = go_through(modules)
    if "ssl" in sys.modules:  # a fork tells OpenSSL; the copy of a machine does not
        mix = sys.modules["ssl"].RAND_add
        numbers.append(lambda: mix(os.urandom(32), 32.0))
    gc.collect()
    gc.freeze()  # what is loaded now is not looked at again
    return numbers


def main():
    try:
        numbers = prepare(sys.argv[2:])
    except Unfit as e:
        os.write(2, b"UnfitError: " + str(e).encode() + b"\n")
        os._exit(1)
    os.write(1, sys.argv[1].encode() + b"\n")
    pinfold_warm.read_exactly(8)  # in a copy from here on
    hooks.quiet = True
    before_fork()
    pinfold_warm.end(pinfold_warm.become(begin(numbers)))


if __name__ == "__main__":
    # The program gets this namespace; what goes on here lives in a module.
    import pinfold_copied

    pinfold_copied.main()
