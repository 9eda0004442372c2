# Immortal objects: from Python 3.12 on references to them are not counted (PEP 683,
# made for just this), so a child that uses them writes to no page of theirs. Before
# 3.15 only Python itself can make objects immortal; it does so by giving them the
# count that None has. This does it for what a zygote has loaded.
import ctypes
import gc
import sys
import types

# What is only used, and what modules are made of: nothing with a finalizer or a
# file, nothing whose end a program could notice in another way.
KINDS = {
    str, bytes, int, float, complex, tuple, frozenset, dict, types.ModuleType, types.CodeType, types.FunctionType, types.CellType,
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, property, staticmethod, classmethod,
}


def count(o):
    return ctypes.c_uint32.from_address(id(o))


def works():
    """Say whether this Python counts no references to what has the count of None."""
    if sys.version_info < (3, 12) or sys.byteorder != "little" or "t" in sys.abiflags:
        return False
    o = (object(), object())
    before = count(o).value
    held = [o] * 3
    if count(o).value != before + 3:  # it is somewhere else
        return False
    immortal = count(o).value = count(None).value
    held += [o] * 3
    del held
    return count(o).value == immortal


def immortalize():
    """Make all that is loaded immortal. Call it when nothing more will be loaded."""
    if not works():
        return
    immortal, seen, todo = count(None).value, set(), gc.get_objects()
    while todo:
        new = [o for o in todo if id(o) not in seen]
        seen.update(map(id, new))
        for o in new:
            if type(o) in KINDS or isinstance(o, type):
                count(o).value = immortal
        todo = [o for o in gc.get_referents(*new) if id(o) not in seen]
