# Compiles a Python program whose last expression's value is wanted.
# pinfold_harness.py loads this file when it is needed.
code_of = harness["code_of"]
PLAIN = b"print(|if |for |while |with |def |class |try:|else:|elif |except|finally:|import |from |assert |del |raise |@".split(b"|")


def program(source, path):
    """Compile a program: all but its last expression, and that, or None. Fails
    where it takes more than a look at the last line."""
    cut = end = len(source)
    while end > 0:  # look for the last line that begins at the margin
        cut = source.rfind(b"\n", 0, end) + 1
        if source[cut : cut + 1] not in b" \t\r\n\f#)]}":
            break
        end = cut - 1
    if source.startswith(tuple(PLAIN), cut):
        return code_of(source, path), None
    start, before = source[:200].lower(), source[max(0, cut - 3) : cut]
    if b"coding" in start and b"utf-8" not in start or b"\\" in before or source[cut : cut + 1] in (b"'", b'"'):
        raise ValueError("a program in another encoding, a continued line, or perhaps a docstring")
    last = code_of(b"\n" * source.count(b"\n", 0, cut) + source[cut:], path, eval)
    code = code_of(source[:cut], path)  # if this is complete, the last line is an expression
    if code.co_flags & 0x1FE0000:
        raise ValueError("a program with imports from __future__")
    return code, last
