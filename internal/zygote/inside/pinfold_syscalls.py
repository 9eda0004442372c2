# A table of system calls that machine code walks, so that a zygote runs no Python
# between two forks: each page that Python writes to, every child would have to copy.
# The code comes from the host, and so does the layout of a step (package walker).
import ctypes
import struct

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

STEP = struct.Struct("=q6qQQQQ")
CALL, STORE, RETURN, ZERO, ALWAYS, OPTIONAL = 1 << 16, 1 << 17, 1 << 18, 1 << 20, 1 << 21, 1 << 22
READ, WRITE, EXEC = 1, 2, 4


class At(int):
    """The word at an address."""

    bits = 1


class At32(At):
    """The int at an address."""

    bits = 1 << 8


def memory(size):
    at = libc.mmap(None, size, READ | WRITE, 0x22, -1, 0)  # private, anonymous
    if at == ctypes.c_void_p(-1).value:
        raise MemoryError("no memory for the table of calls")
    return at


def put(at, content):
    ctypes.memmove(at, content, len(content))


def machine_code(pieces):
    """Map pieces of machine code and return their addresses."""
    size = -(-sum(map(len, pieces)) // 4096) * 4096
    at, found = memory(size), []
    end = at
    for piece in pieces:
        found.append(end)
        put(end, piece)
        end += len(piece)
    if libc.mprotect(at, size, READ | EXEC) != 0:
        raise OSError(ctypes.get_errno(), "cannot map the code of the table of calls")
    return found


class Table:
    """A table and the memory that its calls use."""

    SIZE = 1 << 20

    def __init__(self, numbers):
        self.numbers = numbers
        self.start = self.end = memory(self.SIZE)
        self.steps, self.labels, self.names = [], {}, [""]
        self.nowhere = self.space(8)

    def space(self, size):
        """Return the address of new memory, filled with zeros."""
        at = self.end
        self.end += -(-size // 16) * 16
        if self.end > self.start + self.SIZE:
            raise MemoryError("the table of calls is full")
        return at

    def keep(self, content):
        """Return the address of a copy."""
        at = self.space(len(content) + 1)
        put(at, content)
        return at

    def words(self, *values):
        return self.keep(struct.pack("=%dq" % len(values), *values))

    def label(self, name):
        """Give the next step a name to jump to."""
        self.labels[name] = len(self.steps)

    def add(self, name, number, args, flags=0, save=0, zero=None, always=None, error=None):
        if name not in self.names:
            self.names.append(name)
        for i, arg in enumerate(args):
            flags |= arg.bits << i if isinstance(arg, At) else 0
        flags |= (ZERO if zero else 0) | (ALWAYS if always else 0)
        if len({zero, always, error} - {None}) > 1:
            raise ValueError("a step has one place to jump to")
        self.steps.append((number, list(args) + [0] * (6 - len(args)), flags, save, zero or always or error, self.names.index(name)))

    def call(self, name, call, *args, **more):
        """Add a system call. zero and error name where to jump; save is the
        address for the result."""
        self.add(name, self.numbers[call], args, **more)

    def attempt(self, name, call, *args, **more):
        """Add one whose failure is ignored."""
        self.add(name, self.numbers[call], args, OPTIONAL, **more)

    def function(self, name, at, **more):
        self.add(name, at, (), CALL, **more)

    def store(self, to, value, less=0, **more):
        """Store a number, or what is at an address."""
        self.add("store", 0, (to, value, less), STORE, **more)

    def jump(self, label):
        """Go on there: at a label, or with another table."""
        self.store(self.nowhere, 0, always=label)

    def expect(self, value, expected, otherwise):
        """Go on if they are equal."""
        label = "equal %d" % len(self.steps)
        self.store(self.nowhere, value, expected, zero=label)
        self.jump(otherwise)
        self.label(label)

    def back(self):
        """Return from the walk."""
        self.add("return", 0, (0,), RETURN)

    def finish(self, error):
        """Write the table down and return its address. error is where calls
        that fail jump to, where they do not say."""
        at = self.space(STEP.size * len(self.steps))
        for i, (number, args, flags, save, label, name) in enumerate(self.steps):
            target = label.at if isinstance(label, Table) else at + STEP.size * self.labels[label or error]
            put(at + STEP.size * i, STEP.pack(number, *args, flags, save, target, name))
        return at

    def walk(self, code, failed=0):
        """Walk the table with the machine code at an address. failed is the address of
        two words that tell of a failure."""
        function = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        function(code)(self.at, failed or self.space(16))
