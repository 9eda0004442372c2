# The end of a Python program that left something: shows the exception that
# nobody caught as the interpreter does, and writes values down, one JSON object
# of media type and value in a line. The host reads that and trusts nothing of
# it. pinfold_harness.py loads this file when it is needed.
import io
import os
import sys
from binascii import b2a_base64

try:
    from _json import encode_basestring_ascii as quote
except ImportError:  # Debian's python3-minimal has none

    def quote(text):
        units = text.encode("utf-16-be", "surrogatepass")
        codes = [units[i] << 8 | units[i + 1] for i in range(0, len(units), 2)]
        return '"%s"' % "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else "\\u%04x" % c for c in codes)


RESULTS = os.path.join(HARNESS, "results.jsonl")
MAX_FILE = 15 << 20
MAX_TREE = 64 << 10  # bytes of source; trees of larger programs take too much memory
MAX_TEXT = 1 << 20  # characters of one form of a value
MAX_PLAIN = 64 << 10
MAX_IMAGE = 4 << 20  # bytes
MAX_PIXELS = 25_000_000
MAX_FIGURES = 20
MAX_ROWS, MAX_COLUMNS = 1000, 100
MAX_FRAMES = 100
FRAME = "application/vnd.pinfold.dataframe+json"
ERROR = "application/vnd.pinfold.error+json"

# Methods by which objects show themselves in notebooks.
TEXTS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"),
)
IMAGES = (("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"))


def finish(held, failure, report):
    """Show and report what a program left, and raise what ended it. held has
    the value of the last expression and the code that made it, and no one else
    has the value."""
    ended = isinstance(failure, SystemExit)
    if failure is not None:
        failure.__traceback__ = without_us(failure.__traceback__)
        if not ended:
            show(failure)
    if report:
        try:
            write(held[0], failure)
        except BaseException:
            pass
    if type(held[0]).__name__ == "coroutine":
        let_go(held)
    if failure is not None:
        raise failure


def let_go(held):
    """Forget a coroutine in the line that made it, for the warning names it."""
    code = held.pop()
    if hasattr(code, "co_lines"):
        line = [line for _, _, line in code.co_lines() if line][-1]
    else:  # Python 3.9
        line = code.co_firstlineno + sum(d - 256 if d > 127 else d for d in code.co_lnotab[1::2])
    forget = harness["code_of"](b"\n" * (line - 1) + b"held.clear()", code.co_filename)
    exec(forget, {"held": held, "__name__": "__main__"})


def compile_again(argv, path, report):
    """Compile a program of a rare kind: with warnings, in another encoding, with
    imports from __future__, with a last line that is no expression. What cannot be compiled Python itself gets, which
    says best what is wrong."""
    stderr = sys.stderr
    warned = sys.stderr = io.StringIO()
    try:
        with open(path, "rb") as f:
            source = f.read()
        if report and len(source) <= MAX_TREE:
            source = compile(source, path, "exec", 0x400, True)  # PyCF_ONLY_AST
            last = source.body[-1] if source.body else None
            if type(last).__name__ == "Expr":
                keep_value(source.body, last)
        code = compile(source, path, "exec", 0, True)
    except BaseException as e:
        sys.stderr = stderr
        if report and isinstance(e, SyntaxError):
            write(None, e)
        os.execv(sys.executable, [sys.executable, *argv])
    finally:
        sys.stderr = stderr
    if stderr is not None:
        stderr.write(warned.getvalue())
    return code, kept_value.__code__ if report else None


def keep_value(body, last):
    """Assign the value of the last expression to a name."""
    import _ast

    where = {k: getattr(last, k) for k in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    keep = _ast.Assign([_ast.Name(VALUE, _ast.Store(), **where)], last.value, **where)
    if len(body) == 1 and type(last.value).__name__ == "Constant":
        body.append(keep)  # it may be the docstring
    else:
        body[-1] = keep


def kept_value():  # its code is run in the program's namespace
    return globals().pop("__pinfold_value__", None)


VALUE = "__pinfold_value__"


def without_us(tb):
    """Take our own frames out of a traceback."""
    while tb is not None and ours(tb):
        tb = tb.tb_next
    at = tb
    while at is not None:
        while at.tb_next is not None and ours(at.tb_next):
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return tb


def ours(tb):
    return tb.tb_frame.f_code.co_filename.startswith(HARNESS + "pinfold_")


def show(e):
    """Show an exception that nobody caught, and keep the interpreter from doing
    so again when the same exception ends it."""
    tb = e.__traceback__
    sys.last_type, sys.last_value, sys.last_traceback = type(e), e, tb
    if sys.version_info >= (3, 12):
        sys.last_exc = e
    hook = getattr(sys, "excepthook", None)
    try:
        if hook is None:
            print("sys.excepthook is missing", file=sys.stderr)
        (hook or sys.__excepthook__)(type(e), e, tb)
    except SystemExit:
        raise
    except BaseException as other:
        other.__traceback__ = without_us(other.__traceback__)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(other), other, other.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(e), e, tb)

    def quiet(*_):
        sys.last_traceback = e.__traceback__ = tb
        if hook is None:
            del sys.excepthook
        else:
            sys.excepthook = hook

    sys.excepthook = quiet


def write(value, failure):
    """Write the value of the last expression unless it is None, the open
    figures, and the failure unless it is None or a SystemExit."""
    out = Lines()
    mute = [Mute(sys.stdout), Mute(sys.stderr)]
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = mute  # methods of values may print, and so may libraries
    try:
        shown = None
        if value is not None:
            shown = value
            out.add(lambda: bundle(value, out))
        for figure in open_figures(out):
            if figure is not shown:
                out.add(lambda: figure_bundle(figure, out))
        if failure is not None and not isinstance(failure, SystemExit):
            out.add(lambda: error_bundle(failure))
    finally:
        for name, ours, real in zip(("stdout", "stderr"), mute, streams):
            if getattr(sys, name, None) is ours:
                setattr(sys, name, real)
        out.save()


class Lines:
    """What will be in the file."""

    def __init__(self):
        self.lines, self.size = [], 0

    def add(self, make):
        try:
            forms = make()
        except Exception as e:
            return self.skip("a value could not be shown: " + type(e).__name__)
        line = "{" + ", ".join([quote(k) + ": " + v for k, v in forms.items()]) + "}"
        if self.size + len(line) > MAX_FILE:
            return self.skip("a value is too large beside the others")
        if forms:
            self.lines.append(line)
            self.size += len(line) + 1

    def skip(self, reason):
        if len(self.lines) < 200:
            self.lines.append('{"skipped": ' + text(reason, 200) + "}")

    def save(self):
        if not self.lines:
            return
        try:
            os.unlink(RESULTS)
        except OSError:
            pass
        fd = os.open(RESULTS, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as f:
            f.write("\n".join(self.lines) + "\n")


class Mute:
    """A stream that is silent for the thread that made it."""

    def __init__(self, real):
        from _thread import get_ident

        self._real, self._mine, self._ident = real, get_ident(), get_ident

    def write(self, s):
        return len(s) if self._ident() == self._mine else self._real.write(s)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self._real, name)


def text(s, most=MAX_TEXT):
    """A JSON string of at most that many characters."""
    s = str(s)
    if len(s) > most:
        s = s[:most] + "…"
    return quote(s.encode("utf-8", "replace").decode())


def image(data):
    """A JSON string in base64."""
    return '"' + b2a_base64(data, newline=False).decode() + '"'


def to_json(value):
    import json

    return json.dumps(value, allow_nan=False, default=str)


def plain(value):
    """repr, without building one that would be cut anyway."""
    kind, most = type(value), 10_000
    if kind in (str, bytes) and len(value) > MAX_PLAIN:
        return text(repr(value[:MAX_PLAIN]) + "… (%d in all)" % len(value), MAX_PLAIN)
    if kind in (list, tuple) and len(value) > most:
        return text(repr(value[:most])[:-1] + ", … (%d in all)" % len(value), MAX_PLAIN)
    if kind in (dict, set, frozenset) and len(value) > most:
        from itertools import islice

        some = dict(islice(value.items(), most)) if kind is dict else set(islice(value, most))
        return text(repr(some)[:-1] + ", … (%d in all)" % len(value), MAX_PLAIN)
    return text(repr(value), MAX_PLAIN)


def bundle(value, out):
    """The forms of a value: JSON by media type."""
    pandas, figure = sys.modules.get("pandas"), sys.modules.get("matplotlib.figure")
    if figure is not None and isinstance(value, getattr(figure, "Figure", ())):
        return figure_bundle(value, out)
    forms = {"text/plain": plain(value)}
    if isinstance(value, type) or type(value).__module__ == "builtins":
        return forms
    if pandas is not None and isinstance(value, (getattr(pandas, "DataFrame", ()), getattr(pandas, "Series", ()))):
        forms.update(frame_forms(value))
    protocols(value, forms, out)
    return forms


def protocols(value, forms, out):
    """Ask the value's class for further forms, as notebooks do."""
    for method, media in TEXTS:
        got = ask(value, method, out)
        if isinstance(got, str) and media not in forms:
            if len(got) > MAX_TEXT:
                out.skip(media + " of a value is too large")
            else:
                forms[media] = text(got)
    for method, media in IMAGES:
        got = ask(value, method, out)
        if isinstance(got, str):
            got = got.encode("ascii", "replace")
            from binascii import a2b_base64

            got = a2b_base64(got)
        if isinstance(got, (bytes, bytearray)):
            if len(got) > MAX_IMAGE:
                out.skip(media + " of a value is too large")
            else:
                forms[media] = image(got)
    got = ask(value, "_repr_json_", out)
    if got is not None:
        forms["application/json"] = to_json(got)
    got = ask(value, "_repr_mimebundle_", out)
    for media, form in got.items() if isinstance(got, dict) else ():
        if media in forms or not isinstance(media, str):
            continue
        if isinstance(form, bytes):
            forms[media] = image(form)
        elif isinstance(form, str):
            forms[media] = text(form, 2 * MAX_IMAGE)
        elif media.endswith("json"):
            forms[media] = to_json(form)


def ask(value, method, out):
    f = getattr(type(value), method, None)
    if f is None:
        return None
    try:
        got = f(value)
    except Exception as e:
        out.skip(method + " of a value failed: " + type(e).__name__)
        return None
    return got[0] if isinstance(got, tuple) and got else got


def frame_forms(value):
    """Forms of a pandas data frame or series."""
    forms = {}
    frame = value
    if not hasattr(value, "columns"):
        frame = value.to_frame(name=value.name if value.name is not None else 0)
        forms["text/html"] = text(frame.to_html(max_rows=60, max_cols=20))
    rows, columns = frame.shape
    most = MAX_ROWS
    while True:
        part = frame.iloc[:most, :MAX_COLUMNS]
        data = part.to_json(orient="split", date_format="iso", default_handler=str)
        if len(data) <= MAX_TEXT or most == 0:
            break
        most //= 2
    truncated = part.shape != frame.shape
    forms[FRAME] = '%s,"rows":%d,"truncated":%s}' % (data[:-1], rows, "true" if truncated else "false")
    return forms


def open_figures(out):
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None or "matplotlib.pyplot" not in sys.modules:
        return []
    figures = [m.canvas.figure for m in helpers.Gcf.get_all_fig_managers()]
    if len(figures) > MAX_FIGURES:
        out.skip("%d figures are open; the first %d are shown" % (len(figures), MAX_FIGURES))
    return figures[:MAX_FIGURES]


def figure_bundle(figure, out):
    forms = {"text/plain": plain(figure)}
    width, height = figure.get_size_inches() * figure.dpi
    if not width * height <= MAX_PIXELS:
        out.skip("a figure has more than %d pixels" % MAX_PIXELS)
        return forms
    for media, options in (("image/png", {}), ("image/svg+xml", {"metadata": {"Date": None}})):
        into = Bounded()
        try:
            figure.savefig(into, format=media[6:9], bbox_inches="tight", **options)
        except Exception as e:
            out.skip("%s of a figure failed: %s" % (media, "it is too large" if into.full else type(e).__name__))
            continue
        data = into.getvalue()
        forms[media] = image(data) if media == "image/png" else text(data.decode("utf-8", "replace"), MAX_IMAGE)
    return forms


class Bounded(io.BytesIO):
    """A file that cannot grow beyond an image."""

    full = False

    def write(self, data):
        if self.tell() + len(data) > MAX_IMAGE:
            self.full = True
            raise OSError("too large")
        return super().write(data)


def error_bundle(e):
    name = type(e).__name__
    try:
        message = str(e)
    except BaseException:
        message = ""
    frames = []
    tb, lines = e.__traceback__, {}
    while tb is not None:
        code = tb.tb_frame.f_code
        if not code.co_filename.startswith(HARNESS + "pinfold_"):
            frames.append((code.co_filename, tb.tb_lineno, code.co_name))
        tb = tb.tb_next
    if isinstance(e, SyntaxError) and e.filename:
        frames.append((e.filename, e.lineno or 0, "<module>"))
        message = e.msg
    omitted = max(0, len(frames) - MAX_FRAMES)
    if omitted:
        frames[MAX_FRAMES // 5 : MAX_FRAMES // 5 + omitted] = []
    listed = ",".join(
        '{"file":%s,"line":%d,"name":%s,"text":%s}'
        % (text(file, 1000), line or 0, text(function, 200), text(source_line(file, line, lines), 500))
        for file, line, function in frames
    )
    forms = {
        "text/plain": text(name + ": " + message if message else name, MAX_PLAIN),
        ERROR: '{"name":%s,"message":%s,"traceback":[%s]' % (text(name, 200), text(message, MAX_PLAIN), listed),
    }
    forms[ERROR] += ',"omitted":%d}' % omitted if omitted else "}"
    return forms


def source_line(file, line, lines):
    """The line of a file, without its indentation, or nothing."""
    if file not in lines:
        lines[file] = []
        try:
            with open(file, "rb") as f:
                lines[file] = f.read(1 << 20).split(b"\n")
        except (OSError, ValueError):
            pass
    if not line or line > len(lines[file]):
        return ""
    return lines[file][line - 1].decode("utf-8", "replace").strip()
