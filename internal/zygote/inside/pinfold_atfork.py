# What modules have asked Python to call around a fork (os.register_at_fork). Most
# of it makes locks anew, for which each child of a zygote would have to copy a hundred
# pages. The zygote does that once, for all of them, before it forks; a child then does
# only what must be different in each.
import os

MOMENTS = ("before", "after_in_parent", "after_in_child")
ONLY_LOCKS = {("threading", "_after_fork"), ("logging", "_after_at_fork_child_reinit_locks"), (None, "_at_fork_reinit")}


class Hooks:
    """Keeps what is registered from now on, and calls it as Python would."""

    def __init__(self):
        self.noted, self.needed = [], []  # all, and those that a child cannot do without
        self.quiet = False
        self.register = os.register_at_fork
        self.register(before=self.before, after_in_parent=self.after_in_parent, after_in_child=self.after_in_child)
        os.register_at_fork = self.note

    def note(self, **hooks):
        if not hooks or not all(name in MOMENTS and callable(hook) for name, hook in hooks.items()):
            self.register(**hooks)  # it knows the right error
        self.noted.append(hooks)

    def close(self):
        """Keep no more."""
        os.register_at_fork = self.register
        self.needed = [hooks for hooks in self.noted if not only_locks(hooks.get("after_in_child"))]

    def at(self, moment):
        return [hooks[moment] for hooks in (self.needed if self.quiet else self.noted) if moment in hooks]

    def before(self):
        call(reversed(self.at("before")))

    def after_in_parent(self):
        call(self.at("after_in_parent"))

    def after_in_child(self):
        hooks = self.at("after_in_child")
        self.quiet = False  # for what this process forks
        call(hooks)


def only_locks(hook):
    return (getattr(hook, "__module__", None), getattr(hook, "__name__", "")) in ONLY_LOCKS


def call(hooks):
    """Call all, and raise the last of what they raise: Python shows it."""
    failed = None
    for hook in hooks:
        try:
            hook()
        except BaseException as e:
            failed = e
    if failed is not None:
        raise failed


hooks = Hooks()  # from the import of this on: it must come before what registers any
