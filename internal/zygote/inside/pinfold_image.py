# A zygote's memory as a sealed file, from which it and its children have private
# copies of the pages that they write to. The kernel then copies no page tables for
# it when the zygote forks, and frees none when a child ends: a page of a file is mapped
# when it is used. The pages that a child always writes to are copied beforehand, all at once.
#
# Only memory whose manager we know is taken: Python's own, the C library's heap, and
# the data of libraries. Another allocator might count on zeros after
# madvise(MADV_DONTNEED), and would find the file's pages.
from pinfold_syscalls import EXEC, READ, WRITE, At, Table, libc, memory, put

import ctypes
import os
import re
import struct
import sys

PAGE, PIECE = os.sysconf("SC_PAGESIZE"), 1 << 20
RESERVED = 1 << 30  # addresses for Python's arenas
MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE = 2, 0x10, 0x20, 0x4000
MFD_CLOEXEC, MFD_ALLOW_SEALING = 1, 2
F_ADD_SEALS, ALL_SEALS = 1033, 1 | 2 | 4 | 16  # 16: no write from now on; 8 would wait for pages that the kernel moves
LEFT = ("libc.so", "ld-linux", "libpthread")  # fork itself writes to their data
EXCLUSIVE = 1 << 56  # in /proc/self/pagemap: nobody else has the page


def mappings():
    """Yield start, end, rights and name of what is mapped, but for what is shared."""
    with open("/proc/self/maps") as f:
        for line in f:
            where, rights, _, _, _, *name = line.split(None, 5)
            start, end = (int(x, 16) for x in where.split("-"))
            if rights[3] == "p":
                yield start, end, rights, name[0].rstrip() if name else ""


class Arenas:
    """Python's memory, in one stretch. To be made before anything is loaded."""

    class Allocator(ctypes.Structure):
        _fields_ = [("context", ctypes.c_void_p), ("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p)]

    def __init__(self, alloc, free):
        self.early = [(start, end) for start, end, rights, name in mappings() if rights == "rw-p" and not name and end - start >= PIECE]
        self.start = libc.mmap(None, RESERVED, READ | WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if self.start == ctypes.c_void_p(-1).value:
            self.start = 0
            return
        self.context = memory(PAGE)  # the next address, and the end
        put(self.context, struct.pack("=QQ", self.start, self.start + RESERVED))
        ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(self.Allocator(self.context, alloc, free)))

    def close(self):
        """Give back the addresses that are left, and return what is Python's."""
        if not self.start:
            return self.early
        used = ctypes.c_uint64.from_address(self.context).value
        put(self.context + 8, struct.pack("=Q", used))
        libc.munmap(ctypes.c_void_p(used), ctypes.c_size_t(self.start + RESERVED - used))
        return self.early + [(self.start, used)]


def ours(arenas):
    """Return start, end and rights of the memory that becomes a file."""
    python, found = arenas.close(), []
    for start, end, rights, name in mappings():
        file = name.startswith("/") and rights in ("rw-p", "r--p") and not name.rpartition("/")[2].startswith(LEFT)
        if name == "[heap]" or file and written(start, end):
            found.append((start, end, rights))
        elif not name and rights == "rw-p":
            found += [(max(start, a), min(end, b), rights) for a, b in python if a < end and start < b]
    return found


def pages(ranges):
    """Return what the kernel says of each page, a list for each range."""
    fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    found = [os.pread(fd, (end - start) // PAGE * 8, start // PAGE * 8) for start, end, _ in ranges]
    os.close(fd)
    return [struct.unpack("=%dQ" % (len(words) // 8), words) for words in found]


def written(start, end):
    """Say whether a mapping of a file has pages of its own."""
    return any(page >> 61 == 0b100 or page >> 62 == 1 for page in pages([(start, end, "")])[0])  # present and no file's, or swapped


def merge_libraries():
    """Make the constants of programs and libraries executable, as the code beside
    them is: one mapping for both, where each child would have copies of two or three."""
    found = list(mappings())
    code = {at for start, end, rights, name in found if rights == "r-xp" and name[:1] == "/" for at in (start, end)}
    try:
        for start, end, rights, name in found:
            if rights == "r--p" and name[:1] == "/" and (start in code or end in code) and not written(start, end):
                libc.mprotect(start, end - start, READ | EXEC)  # where it may not be, it stays as it was
    except OSError:
        pass  # this kernel does not say enough of pages


SMALL = re.compile(rb"^ +\d+ +(\d+) +\d+ +\d+ +(\d+)$", re.M)  # size, ..., blocks that are free
kept = []


def fill_holes():
    """Take the small blocks that are free here and there in Python's memory, so that
    what a child makes lies together, in pages that nothing else is in."""
    report, stderr = os.memfd_create("report"), os.dup(2)
    os.dup2(report, 2)
    try:
        sys._debugmallocstats()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    with open(report, "rb") as f:
        f.seek(0)
        holes = [(int(size), int(free)) for size, free in SMALL.findall(f.read())]
    large, one = 1 << 31, 1
    for size, free in holes:
        free = min(free, MOST // size)
        if size == 16:
            kept.append([object() for _ in range(free)])
        elif size == 32:
            kept.append([large + one for _ in range(free)])
        elif size <= 512:
            kept.append([bytes(size - 33) for _ in range(free)])


MOST = 1 << 23  # bytes of one size


def copied(ranges):
    """Return the stretches of pages that a child has copied, as it calls this."""
    found = []
    for (start, _, rights), words in zip(ranges, pages(ranges)):
        for i, page in enumerate(words if "w" in rights else ()):
            at = start + i * PAGE
            if not page & EXCLUSIVE:
                continue
            if found and found[-1][1] == at:
                found[-1][1] += PAGE
            else:
                found.append([at, at + PAGE])
    return found


CALLS = {"x86_64": {"pwrite": 18, "mmap": 9, "fcntl": 72, "close": 3}, "aarch64": {"pwrite": 68, "mmap": 222, "fcntl": 25, "close": 57}}


class Image(Table):
    """The calls that put memory into a file and map the file in its place, before
    another table is walked: Python itself would write to it at once. They
    change nothing where one fails; the rest stays as it was."""

    def __init__(self, ranges, then):
        super().__init__(CALLS[os.uname().machine])
        fd = libc.memfd_create(b"python", MFD_CLOEXEC | MFD_ALLOW_SEALING)  # where there is none, nothing can be written
        offset, wrote = 0, self.words(0)
        for start, end, rights in ranges:
            prot = READ | (WRITE if "w" in rights else 0)
            for at in range(start, end, PIECE):
                size = min(PIECE, end - at)
                self.call("write memory", "pwrite", fd, at, size, offset, save=wrote, error="done")
                self.expect(At(wrote), size, "done")
                self.call("map memory", "mmap", at, size, prot, MAP_PRIVATE | MAP_FIXED, fd, offset, error="done")
                offset += size
        self.label("done")
        self.attempt("seal memory", "fcntl", fd, F_ADD_SEALS, ALL_SEALS)
        self.attempt("close", "close", fd)
        self.jump(then)
        self.at = self.finish("done")
