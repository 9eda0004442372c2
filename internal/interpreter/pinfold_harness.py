# Runs a Python program as "python3 FILE ARGS" would, and then has what it
# leaves as values written down: of its last expression, of open figures, of
# the exception that ended it. interpreter.go says how it is started.
#
# Every run pays for this file with its start. So it is short, imports only what
# Python has loaded already, and leaves the rest to its neighbours. It does not
# call compile(), whose first use costs more than everything here.
import os
import sys
from _imp import _fix_co_filename

if __name__ != "__main__":
    __builtins__ = dict(__builtins__)  # the program may change its own
FOLDER = __file__.rpartition("/")[0] + "/"
# Modules that a program may always import. A warm parent loads us first.
STARTUP = list(sys.modules)
MAIN = "__name__ __doc__ __package__ __loader__ __spec__ __annotations__ __builtins__ __file__ __cached__".split()
STATEMENTS = b"print( if for while with def class try else elif except finally import from assert del raise return @".split()
FUTURES = 0x1FE0000
loaded = {}


def load(name):
    """Return the namespace of one of our files. A warm parent may call it early."""
    if name not in loaded:
        with open(FOLDER + name, "rb") as f:
            code = code_of(f.read(), FOLDER + name)
        loaded[name] = {"__name__": name[:-3], "__file__": FOLDER + name, "harness": globals()}
        loaded[name].update(__builtins__=__builtins__, HARNESS=FOLDER)
        exec(code, loaded[name])
    return loaded[name]


def run_main(argv, imports=None, report=True):
    """Run the program argv[0] as __main__, with argv as sys.argv.

    imports lists what it may import, None means everything. report says whether
    its values are wanted. This returns when the program has run to its end, and
    raises what ended it otherwise; the caller then does nothing more, so that
    the interpreter ends as it would have. Its code must not need __main__,
    which is emptied.
    """
    pid = os.getpid()
    path = argv[0] if argv[0].startswith("/") else os.getcwd() + "/" + argv[0]
    value = failure = None
    try:
        with open(path, "rb") as f:
            code, last = program(f.read(), path, report)
    except BaseException:
        code, last = load("pinfold_rich.py")["compile_again"](argv, path, report)
    if imports is not None:
        load("pinfold_imports.py")["limit_imports"](imports, path.rpartition("/")[0])
    space = become_main(argv, path)
    try:
        exec(code, space)
        if last is not None:
            value = eval(last, space)
    except BaseException as e:
        failure = e
    if value is None and failure is None and "matplotlib.pyplot" not in sys.modules:
        return
    try:
        finish = load("pinfold_rich.py")["finish"]
    except Exception:  # the program has removed it
        if failure is None:
            return
        raise failure
    held, value = [value, last], None
    finish(held, failure, report and os.getpid() == pid)


def program(source, path, report):
    """Compile a program: all but its last expression, and that, or None."""
    if report:
        cut = end = len(source)
        while end > 0:  # look for the last line that begins at the margin
            cut = source.rfind(b"\n", 0, end) + 1
            if source[cut : cut + 1] not in b" \t\r\n\f#)]}":
                break
            end = cut - 1
        start = source[:200].lower()
        if b"coding" in start and b"utf-8" not in start or source.startswith((b"'", b'"'), cut):
            raise ValueError("a program in another encoding, or perhaps a docstring")
        if not source.startswith(tuple(STATEMENTS), cut):
            try:
                last = code_of(b"\n" * source.count(b"\n", 0, cut) + source[cut:], path, eval)
            except SyntaxError:
                last = None
            if last is not None:  # so the last line is an expression if what is before it is complete
                code = code_of(source[:cut], path)
                if code.co_flags & FUTURES:
                    raise ValueError("a program in another language")
                return code, last
    return code_of(source, path), None


def code_of(source, path, run=exec):
    """Compile as compile() does, which costs 2 ms when it is first called: have
    it run, and stop it before it begins."""
    import io

    found, space, stderr = [], {}, sys.stderr

    def stop(frame, event, _):
        if event == "call" and frame.f_globals is space:
            found.append(frame.f_code)
            raise KeyError

    sys.stderr = warned = io.StringIO()
    sys.setprofile(stop)
    try:
        run(source, space)
    except KeyError:
        pass
    finally:
        sys.setprofile(None)
        sys.stderr = stderr
    if warned.tell():
        raise ValueError("a program with warnings")
    _fix_co_filename(found[0], path)
    return found[0]


def become_main(argv, path):
    """Make __main__, sys.argv and sys.path what they are for "python3 FILE"."""
    space = sys.modules["__main__"].__dict__
    kept = {k: space[k] for k in space if k in MAIN}
    kept.update(__name__="__main__", __doc__=None, __file__=path, __spec__=None)
    kept["__loader__"] = sys.modules["_frozen_importlib_external"].SourceFileLoader("__main__", path)
    if "__annotations__" in kept:
        kept["__annotations__"] = {}
    space.clear()
    space.update(kept)
    sys.argv = argv
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = sys.orig_argv[:1] + argv
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.realpath(path).rpartition("/")[0] or "/"
    return space


def start():
    """Run the program of the command line. It gets this namespace, so that our
    functions move to one of their own."""
    own = dict(globals(), __name__="pinfold_harness", __builtins__=dict(__builtins__.__dict__))
    for name, f in globals().items():
        if type(f) is type(start):
            own[name] = type(f)(f.__code__, own, name, f.__defaults__)
    argv, options = sys.argv[1:], {}
    if argv[0].startswith("--imports="):
        options["imports"] = [name for name in argv.pop(0)[10:].split(",") if name]
    if argv[0] == "--no-results":
        options["report"] = not argv.pop(0)
    own["run_main"](argv, **options)


if __name__ == "__main__":
    start()
