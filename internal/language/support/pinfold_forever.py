# Objects that live for ever: from Python 3.12 on references to them are not
# counted (PEP 683, made for just this), so a fork that uses them writes to no page
# of theirs. Only Python itself can make them so before 3.15; what it does is to
# give them the count that None has. This does it for what a parent has loaded.
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
    forever = count(o).value = count(None).value
    held += [o] * 3
    del held
    return count(o).value == forever


def immortalize():
    """Let what is loaded live for ever. It is to be done when no more will be."""
    if not works():
        return
    forever, seen, todo = count(None).value, set(), gc.get_objects()
    while todo:
        new = [o for o in todo if id(o) not in seen]
        seen.update(map(id, new))
        for o in new:
            if type(o) in KINDS or isinstance(o, type):
                count(o).value = forever
        todo = [o for o in gc.get_referents(*new) if id(o) not in seen]
