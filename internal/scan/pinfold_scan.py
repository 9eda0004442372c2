# Reads Python source with Python's own parser and writes what it does as
# facts, in one line of JSON. It executes nothing of what it reads. It runs
# inside a sandbox, and what it writes is the guest's word: package scan reads
# it as such. Started as: python3 pinfold_scan.py FILE
import ast
import base64
import gc
import json
import sys

MAX_FACTS = 20000
MAX_TEXT = 4096
MAX_SHOWN = 300
MAX_ARGS = 4
MAX_NESTED = 2  # source inside source: exec("exec('...')")
MAX_RESOLVE = 30

DECODERS = ("b64decode", "fromhex", "unhexlify", "a2b_base64", "urlsafe_b64decode", "standard_b64decode")
READS = ("eval", "exec", "compile")
HINTS = ("169.254.", "metadata", "stratum+", "http", "://", ".onion")
PLAIN = frozenset((type(None), str, int, ast.Name, ast.Load, ast.Store, ast.Del, ast.Pass, ast.Break, ast.Continue, ast.And, ast.Or, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot, ast.In, ast.NotIn, ast.Not, ast.USub, ast.Global, ast.Nonlocal))
LEAVES = (PLAIN - {ast.Name}) | {ast.Constant}
BUILTIN = ("__builtins__.", "builtins.", "__builtins__.__dict__.", "globals().", "__import__().")


class Folder:
    def __init__(self):
        self.alias = {}
        self.texts = {}  # names that stand for a constant text

    # The value of an expression that needs no run to know: a text, bytes, a number, or None.
    def fold(self, e, depth=0):
        t = type(e)
        if t is ast.Constant:
            return e.value
        if depth > MAX_RESOLVE:
            return None
        if t is ast.Name:
            return self.texts.get(e.id)
        if t is ast.BinOp:
            return self.fold_binary(type(e.op), self.fold(e.left, depth + 1), self.fold(e.right, depth + 1))
        if t is ast.JoinedStr:
            parts = [self.fold(v.value if type(v) is ast.FormattedValue else v, depth + 1) for v in e.values[:100]]
            return "".join(parts)[:MAX_TEXT] if all(isinstance(p, str) for p in parts) else None
        if t is ast.Subscript and type(e.slice) is ast.Slice:
            step = self.fold(e.slice.step, depth + 1) if e.slice.step else None
            text = self.fold(e.value, depth + 1)
            if isinstance(text, (str, bytes)) and step == -1 and e.slice.lower is None and e.slice.upper is None:
                return text[::-1]
            return None
        if t is ast.UnaryOp and type(e.op) is ast.USub:
            n = self.fold(e.operand, depth + 1)
            return -n if isinstance(n, (int, float)) else None
        if t is ast.Call:
            return self.fold_call(e, depth)
        return None

    def fold_binary(self, op, left, right):
        if op is ast.Add and type(left) is type(right) and isinstance(left, (str, bytes)):
            return (left + right)[:MAX_TEXT]
        if op is ast.Mult and isinstance(left, str) and isinstance(right, int) and 0 <= right * len(left) <= MAX_TEXT:
            return left * right
        if not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
            return None
        try:
            left, right = float(left), float(right)
            if op is ast.Add:
                return left + right
            if op is ast.Mult:
                return left * right
            if op is ast.Pow:
                return left**right
            if op is ast.LShift:
                return left * 2.0**right
        except OverflowError:
            return 1e300
        except (ValueError, ZeroDivisionError, TypeError):
            pass
        return None

    def fold_call(self, e, depth):
        f = e.func
        what = f.attr if type(f) is ast.Attribute else self.name(f).rpartition(".")[2]
        value = self.fold(e.args[0], depth + 1) if len(e.args) else None
        try:
            if what == "chr" and isinstance(value, (int, float)):
                return chr(int(value))
            if what in ("bytes", "bytearray") and e.args and type(e.args[0]) in (ast.List, ast.Tuple):
                return bytes(self.fold(x, depth + 1) for x in e.args[0].elts[:MAX_TEXT])
            if what in DECODERS and isinstance(value, (str, bytes)):
                value = value.encode() if isinstance(value, str) else value
                return bytes.fromhex(value.decode()) if "hex" in what else base64.b64decode(value)
            if type(f) is not ast.Attribute:
                return None
            if what == "join" and len(e.args) == 1:
                return self.fold_join(f, e.args[0], depth)
            if what not in ("decode", "encode", "replace"):
                return None
            whole = self.fold(f.value, depth + 1)
            if what == "decode" and isinstance(whole, bytes):
                return whole.decode("utf-8", "replace")
            if what == "encode" and isinstance(whole, str):
                return whole.encode()
            if what == "replace" and len(e.args) == 2:
                new = self.fold(e.args[1], depth + 1)
                if all(isinstance(x, str) for x in (whole, value, new)) and len(new) < 100:
                    return whole.replace(value, new)[:MAX_TEXT]
        except (ValueError, TypeError, OverflowError):
            pass
        return None

    def fold_join(self, f, e, depth):
        sep = self.fold(f.value, depth + 1)
        if type(e) in (ast.ListComp, ast.GeneratorExp) and type(e.elt) is ast.Call and getattr(e.elt.func, "id", "") == "chr" and len(e.generators) == 1:
            source = e.generators[0].iter
            if type(source) in (ast.List, ast.Tuple) and type(e.elt.args[0]) is ast.Name:
                numbers = [self.fold(x, depth + 1) for x in source.elts[:MAX_TEXT]]
                return sep.join(chr(int(n)) for n in numbers) if isinstance(sep, str) else None
        if type(e) is ast.Call and getattr(e.func, "id", "") == "map" and len(e.args) == 2 and getattr(e.args[0], "id", "") == "chr" and type(e.args[1]) in (ast.List, ast.Tuple):
            return sep.join(chr(int(self.fold(x, depth + 1))) for x in e.args[1].elts[:MAX_TEXT])
        if type(e) in (ast.List, ast.Tuple):
            parts = [self.fold(x, depth + 1) for x in e.elts[:MAX_TEXT]]
            if isinstance(sep, str) and all(isinstance(p, str) for p in parts):
                return sep.join(parts)[:MAX_TEXT]
        return None


class Reader(Folder):
    def __init__(self):
        super().__init__()
        self.facts = []
        self.full = False

    def emit(self, kind, node, name, args=None, kw=None, flags=None):
        if len(self.facts) >= MAX_FACTS:
            self.full = True
            return
        fact = {"k": kind, "l": node.lineno, "c": node.col_offset + 1, "n": name[:MAX_SHOWN]}
        if args:
            fact["a"] = args
        if kw:
            fact["w"] = kw
        if flags:
            fact["f"] = flags
        self.facts.append(fact)

    # What an expression is called, through imports, assignments and getattr.
    def name(self, e, depth=0):
        if depth > MAX_RESOLVE:
            return "?"
        t = type(e)
        if t is ast.Name:
            return self.alias.get(e.id, e.id)
        if t is ast.Attribute:
            return plain_builtin((self.name(e.value, depth + 1) + "." + e.attr)[:MAX_SHOWN])
        if t is ast.Call:
            f = self.name(e.func, depth + 1)
            if f == "getattr" and len(e.args) > 1:
                attr = self.fold(e.args[1])
                return plain_builtin(self.name(e.args[0], depth + 1) + "." + attr[:80]) if isinstance(attr, str) else "?"
            if f in ("__import__", "importlib.import_module") and e.args:
                module = self.fold(e.args[0])
                return module[:80] if isinstance(module, str) else "?"
            if f in ("vars", "dict") and len(e.args) == 1:
                return self.name(e.args[0], depth + 1)
            return f + "()"
        if t is ast.Subscript:
            key = self.fold(e.slice)
            base = self.name(e.value, depth + 1)
            if isinstance(key, str):
                if base == "sys.modules":
                    return key[:80]
                return plain_builtin(base.removesuffix(".__dict__") + "." + key[:80])
            return base + "[]"
        if t is ast.Await:
            return self.name(e.value, depth + 1)
        return "?"

    def arg(self, e):
        out = {}
        value = self.fold(e)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str):
            out["t"] = value[:MAX_TEXT]
        elif isinstance(value, bool) or value is None and type(e) is ast.Constant:
            out["t"] = str(value)
        elif isinstance(value, (int, float)):
            out["v"] = min(float(value), 1e300)
        t = type(e)
        if t is ast.List or t is ast.Tuple:
            out["w"] = [w if isinstance(w, str) else "" for w in map(self.fold, e.elts[:30])]
        elif not out and (t is ast.JoinedStr or t is ast.BinOp):
            part = self.part(e)
            if part.replace("{}", ""):
                out["p"] = part[:MAX_TEXT]
        if t is not ast.Constant:
            calls = self.calls_of(e)
            if calls:
                out["c"] = calls
        return out

    # A text with "{}" for what is not known.
    def part(self, e, depth=0):
        value = self.fold(e)
        if isinstance(value, str):
            return value
        if depth < MAX_RESOLVE:
            if type(e) is ast.BinOp and type(e.op) is ast.Add:
                return self.part(e.left, depth + 1) + self.part(e.right, depth + 1)
            if type(e) is ast.BinOp and type(e.op) is ast.Mod:
                return self.part(e.left, depth + 1)
            if type(e) is ast.JoinedStr:
                return "".join(self.part(v, depth + 1) for v in e.values[:30])
        return "{}"

    # The names that an expression calls or mentions, outermost first.
    def calls_of(self, e):
        t = type(e)
        if t is ast.Name:
            known = self.alias.get(e.id)
            return [known[:120]] if known else []
        names, todo = [], [e]
        for node in todo:
            if len(todo) > 60 or len(names) > 8:
                break
            t = type(node)
            if t is ast.Call:
                names.append(self.name(node.func))
            elif t is ast.Name:
                known = self.alias.get(node.id)
                if known:
                    names.append(known)
            elif t is ast.Attribute or t is ast.Subscript:
                names.append(self.name(node))
            for field in FIELDS[t]:
                child = getattr(node, field, None)
                if type(child) is list:
                    todo.extend(c for c in child if type(c) not in LEAVES)
                elif type(child) not in LEAVES:
                    todo.append(child)
        return [n[:120] for n in names]

    def read(self, tree, depth=0):
        stack = [tree]
        pop, push, handlers = stack.pop, stack.append, self.handlers
        while stack:
            node = pop()
            t = type(node)
            handle = handlers.get(t)
            if handle is not None:
                handle(self, node, depth)
            for field in FIELDS[t]:
                child = getattr(node, field, None)
                if type(child) is list:
                    for c in child[::-1]:
                        if type(c) not in PLAIN:
                            push(c)
                elif type(child) not in PLAIN:
                    push(child)

    def on_import(self, node, depth):
        for a in node.names[:200]:
            if a.asname:
                self.alias[a.asname] = a.name
            self.emit("import", node, a.name)

    def on_from(self, node, depth):
        module = "." * node.level + (node.module or "")
        for a in node.names[:200]:
            full = module + "." + a.name
            self.alias[a.asname or a.name] = plain_builtin(full)
            self.emit("import", node, full)

    def on_assign(self, node, depth):
        value = node.value
        t = type(value)
        for target in node.targets[:8]:
            if type(target) is ast.Name and t in (ast.Name, ast.Attribute, ast.Call, ast.Subscript):
                name = self.name(value)
                if name != "?" and name != target.id and not name.startswith(target.id + "."):
                    self.alias[target.id] = name
                else:
                    self.alias.pop(target.id, None)
            if type(target) is ast.Name:
                text = self.fold(value) if t is not ast.Name else None
                if isinstance(text, (str, bytes)) and len(text) <= MAX_TEXT:
                    self.texts[target.id] = text
                else:
                    self.texts.pop(target.id, None)
            if type(target) in (ast.Attribute, ast.Subscript):
                args = [self.arg(value)]
                if type(target) is ast.Subscript:
                    key = self.fold(target.slice)
                    if isinstance(key, str):
                        args.append({"t": key[:MAX_SHOWN]})
                    self.emit("set", node, self.name(target.value), args)
                else:
                    self.emit("set", node, self.name(target), args)

    def on_with(self, node, depth):
        for item in node.items[:8]:
            if type(item.optional_vars) is ast.Name and type(item.context_expr) is ast.Call:
                self.alias[item.optional_vars.id] = self.name(item.context_expr)

    def on_call(self, node, depth):
        name = self.name(node.func)
        args = [self.arg(a) for a in node.args[:MAX_ARGS]]
        kw = {k.arg[:40]: self.arg(k.value) for k in node.keywords[:20] if k.arg}
        self.emit("call", node, name, args, kw)
        if name in ("getattr", "setattr") and len(node.args) > 1:
            self.hidden(node, node.args[1])
        if name in ("__import__", "importlib.import_module") and node.args:
            self.hidden(node, node.args[0])
        if name in ("__import__", "importlib.import_module") and args and "t" in args[0]:
            self.emit("import", node, args[0]["t"][:80])
        if name in READS and args and "t" in args[0]:
            self.nested(node, args[0]["t"], depth)

    # A name that is put together out of what would do as it is.
    def hidden(self, node, e):
        if type(e) not in (ast.Constant, ast.Name) and isinstance(name := self.fold(e), str):
            self.emit("hidden", node, name)

    def on_subscript(self, node, depth):
        base = self.name(node.value)
        if base in ("globals()", "vars()", "locals()", "__builtins__", "sys.modules") or base.endswith("__dict__"):
            self.hidden(node, node.slice)

    # Source that is written as a text in the source. What of it cannot be read was not
    # looked at.
    def nested(self, node, text, depth):
        if depth >= MAX_NESTED or len(text) >= MAX_TEXT:
            self.full = True
            return
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.full = True
            return
        before = len(self.facts)
        self.read(tree, depth + 1)
        for fact in self.facts[before:]:
            fact["l"], fact["c"] = node.lineno, node.col_offset + 1

    def on_attribute(self, node, depth):
        if node.attr.startswith("__") or node.attr in ("environ", "_getframe", "f_globals", "gi_frame"):
            self.emit("name", node, self.name(node))

    def on_text(self, node, depth):
        s = node.value
        if type(s) is bytes:
            s = s.decode("latin-1")
        elif type(s) is not str:
            if type(s) is int and s.bit_length() > 40:
                self.emit("number", node, "", [{"v": min(float(min(s, 1 << 1000)), 1e300)}])
            return
        n = len(s)
        if n < 4 or not ("/" in s or n >= 120 or "~" in s or "." in s[:1] or any(h in s for h in HINTS)):
            return
        self.emit("text", node, "", [{"t": s[:MAX_TEXT], "v": n}])

    def on_binary(self, node, depth):
        op = type(node.op)
        if op is ast.Mult or op is ast.Pow or op is ast.LShift:
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if op is ast.Mult and type(side) in (ast.Constant, ast.List) and not isinstance(getattr(side, "value", ""), (int, float, complex)):
                    n = self.fold(other)
                    if isinstance(n, (int, float)):
                        self.emit("repeat", node, "", [{"v": min(float(n), 1e300)}])
                    return
            n = self.fold(node)
            if isinstance(n, (int, float)) and n > 1e12 and op is not ast.Mult:
                self.emit("number", node, "", [{"v": min(float(n), 1e300)}])

    def on_while(self, node, depth):
        if type(node.test) is ast.Constant and node.test.value or type(node.test) is ast.Name and node.test.id == "True":
            self.endless(node)

    def on_for(self, node, depth):
        if type(node.iter) is ast.Call and self.name(node.iter.func) in ("itertools.count", "itertools.repeat", "iter"):
            if len(node.iter.args) < 2:
                self.endless(node)

    def endless(self, node):
        calls, grows, leaves, todo = [], False, False, [(n, False) for n in node.body]
        for n, inner in todo:
            if len(todo) > 2000:
                break
            t = type(n)
            if t in (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await) or t is ast.Break and not inner:
                leaves = True
            elif t is ast.Call:
                name = self.name(n.func)
                calls.append(name[:120])
                if name.rpartition(".")[2] in ("append", "extend", "add", "update", "appendleft"):
                    grows = True
            elif t is ast.AugAssign and type(n.op) in (ast.Add, ast.Mult, ast.LShift) and not isinstance(self.fold(n.value), (int, float)):
                grows = True
            elif t is ast.Assign and type(n.targets[0]) is ast.Subscript:
                grows = True
            elif t is ast.AugAssign and type(n.op) in (ast.Mult, ast.LShift, ast.Pow):
                grows = True
            if t in (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef):
                continue
            inner = inner or t in (ast.While, ast.For)
            todo.extend((c, inner) for c in ast.iter_child_nodes(n))
        if not leaves:
            self.emit("endless", node, "", [{"c": calls[:40]}], None, ["grows"] if grows else None)

    handlers = {
        ast.Import: on_import, ast.ImportFrom: on_from, ast.Assign: on_assign, ast.Call: on_call, ast.Attribute: on_attribute,
        ast.Constant: on_text, ast.BinOp: on_binary, ast.While: on_while, ast.For: on_for, ast.With: on_with, ast.Subscript: on_subscript,
    }


SHALLOW = ("ctx", "op", "ops", "type_comment", "kind", "id", "attr", "name", "arg", "module", "level")


# The fields of a type of nodes that may hold nodes, from the last.
class Fields(dict):
    def __missing__(self, t):
        names = () if t is ast.Constant else reversed(t._fields)
        self[t] = tuple(f for f in names if f not in SHALLOW)
        return self[t]


FIELDS = Fields()


def plain_builtin(name):
    for prefix in BUILTIN:
        if name.startswith(prefix):
            return name[len(prefix):]
    return name


# Facts of the source, or why there are none.
def scan(source):
    gc.disable()  # nothing of a tree is garbage before the end
    try:
        tree = ast.parse(source)
        reader = Reader()
        reader.read(tree)
        return {"facts": reader.facts, "cut": reader.full}
    except SyntaxError as e:
        return {"error": "%s (line %s)" % (str(e.msg)[:200], e.lineno)}
    except (ValueError, RecursionError, MemoryError, OverflowError) as e:
        return {"error": (str(e) or type(e).__name__)[:200]}
    finally:
        gc.enable()


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    with open(sys.argv[1], "rb") as f:
        json.dump(scan(f.read()), sys.stdout)
