# Limits what a program imports to a list, for the programs that have one. It
# keeps honest programs to the list, and tells people and models which modules
# they can use. A hostile program gets around it, and finds the sandbox.
import builtins
import os
import sys


def limit_imports(names, home):
    """Let the program import only these top-level modules, those that Python
    itself had loaded when it started, and its own files, which are below home.

    What counts is who imports: libraries may import what they like.
    """
    allowed = {name.partition(".")[0] for name in harness["STARTUP"]}.union(names, ["__main__", "__future__"])
    homes = {home + "/", os.path.realpath(home) + "/"}
    plain = builtins.__import__
    bootstrap = sys.modules["_frozen_importlib"]
    plain_module = bootstrap._gcd_import  # what importlib.import_module calls
    listed = ", ".join(sorted(names)[:50]) or "nothing"

    def by_the_program(space):
        spec = space.get("__spec__")
        origin = getattr(spec, "origin", None) or space.get("__file__")
        if space.get("__name__") == "__main__" or origin is None:
            return True
        return str(origin).startswith(tuple(homes)) and not str(origin).startswith(HARNESS)

    def check(name):
        top = name.partition(".")[0]
        if top in allowed:
            return
        for folder in homes:
            if os.path.exists(folder + top + ".py") or os.path.isdir(folder + top):
                return
        raise ImportError("%s may not be imported in this run; allowed_imports has %s" % (top, listed), name=top)

    # C code imports in the name of whoever called it, with a list of names.
    def __import__(name, globals=None, locals=None, fromlist=(), level=0):
        if level == 0 and type(name) is str and type(fromlist) is not list:
            if by_the_program(globals if type(globals) is dict else sys._getframe(1).f_globals):
                check(name)
        return plain(name, globals, locals, fromlist, level)

    def _gcd_import(name, package=None, level=0):
        if level == 0 and by_the_program(sys._getframe(2).f_globals):
            check(name)
        return plain_module(name, package, level)

    builtins.__import__ = __import__
    bootstrap._gcd_import = _gcd_import
