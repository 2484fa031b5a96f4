"""Reads Python code as far as that can be done without running it: what it deletes, writes, reads and starts.

What it finds is told as shell commands (`gad.core.commands.Command`): `shutil.rmtree(x)` is `rm -r x`. Names that are
imported, constants that are assigned, and paths that are put together of them are seen through; nothing else is. It is
a net and no wall.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Mapping, Sequence

from gad.core.commands import LONGEST_CODE, RESERVED, SCRATCH, UNKNOWN, Command, Unreadable, absolute
from gad.core.shell import read_shell, read_words

_PATHS = frozenset({"pathlib.Path", "pathlib.PosixPath", "pathlib.PurePath", "pathlib.PurePosixPath"})
_JOINS = frozenset({"os.path.join", "posixpath.join"})
_SAME = frozenset({"str", "os.fspath", "os.fsdecode", "os.path.expanduser", "os.path.expandvars", "os.path.abspath",
                   "os.path.realpath", "os.path.normpath", "shlex.quote"})  # fmt: skip
_SAME_METHODS = frozenset({"resolve", "expanduser", "absolute", "as_posix", "strip", "encode", "decode"})
_TEMPORARY = frozenset({"tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.mktemp", "tempfile.gettempdir",
                        "tempfile.TemporaryDirectory", "tempfile.NamedTemporaryFile"})  # fmt: skip
_AS_COMMANDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("os.remove", "os.unlink", "os.rmdir"), ("rm",)),
    **dict.fromkeys(("os.removedirs", "shutil.rmtree", "send2trash.send2trash"), ("rm", "-r")),
    **dict.fromkeys(("os.rename", "os.renames", "os.replace", "shutil.move"), ("mv",)),
    **dict.fromkeys(("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree"), ("cp",)),
    **dict.fromkeys(("os.symlink", "os.link"), ("ln",)),
    **dict.fromkeys(("os.mkdir", "os.makedirs", "os.mknod", "os.mkfifo", "os.truncate"), ("touch",)),
}
"""Functions whose first arguments are paths, as the commands that do the same."""
_FIRST_ONLY = frozenset({"os.mkdir", "os.makedirs", "os.mknod", "os.mkfifo", "os.truncate", "os.remove", "os.unlink",
                         "os.rmdir", "os.removedirs", "shutil.rmtree", "send2trash.send2trash"})  # fmt: skip
_MODES = {"os.chmod": "chmod", "os.chown": "chown", "shutil.chown": "chown", "os.lchown": "chown"}
_METHODS: dict[str, tuple[str, ...]] = {
    "unlink": ("rm",),
    "rmdir": ("rm",),
    "write_text": ("touch",),
    "write_bytes": ("touch",),
    "touch": ("touch",),
    "mkdir": ("touch",),
    "chmod": ("touch",),
    "symlink_to": ("touch",),
    "hardlink_to": ("touch",),
}
_SHELLS = frozenset({"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput",
                     "asyncio.create_subprocess_shell"})  # fmt: skip
_STARTS = frozenset({"subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
                     "subprocess.Popen", "pty.spawn"})  # fmt: skip
_OPENS = frozenset({"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"})
_LONGEST_PATH = 4096
_ROOM = 10_000_000
"""Characters that the names of one code may give altogether."""
_PER_PART = 20
"""Characters that each part of an expression counts for, each time that it is looked at."""
_DEEPEST = 5

Value = str | tuple[str, ...]


def read_python(code: str, cwd: str, home: str, variables: Mapping[str, str] | None = None) -> list[Command]:
    """Return what Python code does that can be seen, as commands. Raises Unreadable.

    `variables` are those of its environment that are known beforehand, beside HOME. Code that is no Python will not
    run, so it does nothing.
    """
    return _read(code, cwd, {"HOME": home, **(variables or {})}, 0)


def _read(code: str, cwd: str, environ: Mapping[str, str], depth: int) -> list[Command]:
    if depth > _DEEPEST or len(code) > LONGEST_CODE:
        raise Unreadable
    try:
        # The file that runs is read as bytes: a line in it may name another encoding.
        tree = ast.parse(code if depth else code.encode())
        reader = _Reader(cwd, environ, depth)
        reader.visit(tree)
    except (SyntaxError, ValueError):
        return []
    except (RecursionError, MemoryError):
        raise Unreadable from None
    return reader.found


class _Reader(ast.NodeVisitor):
    def __init__(self, cwd: str, environ: Mapping[str, str], depth: int) -> None:
        self.found: list[Command] = []
        self._cwd = cwd
        self._environ = environ
        self._home = environ["HOME"]
        self._depth = depth
        self._names: dict[str, str] = {}
        self._values: dict[str, Value] = {}
        self._room = _ROOM

    # -- what is known -------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        """Take note of a module's name."""
        for alias in node.names:
            self._names[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Take note of what is imported from a module."""
        for alias in node.names:
            if alias.name == "*":
                for known in (*_AS_COMMANDS, *_SHELLS, *_STARTS, *_PATHS):
                    if known.rpartition(".")[0] == node.module:
                        self._names[known.rpartition(".")[2]] = known
            else:
                self._names[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def visit_Assign(self, node: ast.Assign) -> None:
        """Take note of a name's value."""
        self.generic_visit(node)
        dotted = self._dotted(node.value)
        value = self._value(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._set(target.id, value)
                if dotted and "." in dotted:
                    self._names[target.id] = dotted

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Take note of a name's value."""
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and node.value is not None:
            self._set(node.target.id, self._value(node.value))

    def visit_With(self, node: ast.With) -> None:
        """Take note of what a name stands for in the block."""
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                self._set(item.optional_vars.id, self._value(item.context_expr))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        """Let a loop's variable stand for the one of its values that leads farthest."""
        if isinstance(node.target, ast.Name):
            values = self._words(node.iter)
            far = [one for one in values or () if one.startswith(("/", "~", UNKNOWN)) or ".." in one]
            self._set(node.target.id, (far or list(values or ()) or [UNKNOWN])[0])
        self.generic_visit(node)

    def _set(self, name: str, value: Value) -> None:
        if value == UNKNOWN:
            self._values.pop(name, None)
        else:
            self._values[name] = value

    def _known(self, name: str) -> Value:
        value = self._values.get(name, UNKNOWN)
        self._spend(sum(map(len, value)) + 1)
        return value

    def _spend(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise Unreadable

    def _dotted(self, node: ast.expr) -> str:
        """Return a function's full name, as far as the imports tell."""
        match node:
            case ast.Name(name):
                return self._names.get(name, name)
            case ast.Attribute(value, attribute):
                base = self._dotted(value)
                return f"{base}.{attribute}" if base else ""
            case ast.Call(ast.Name("__import__"), [ast.Constant(str() as module), *_]):
                return module
            case ast.Call(ast.Name("getattr"), [base, ast.Constant(str() as attribute), *_]):
                return f"{self._dotted(base)}.{attribute}"
            case ast.Call(function, [ast.Constant(str() as module)]):
                return module if self._dotted(function) == "importlib.import_module" else ""
        return ""

    def _value(self, node: ast.expr) -> Value:
        words = self._words(node)
        return words if words is not None else self._text(node)

    def _words(self, node: ast.expr) -> tuple[str, ...] | None:
        """Return a list's texts; None for what is no list."""
        match node:
            case ast.List(elements) | ast.Tuple(elements) | ast.Set(elements):
                return tuple(UNKNOWN if isinstance(one, ast.Starred) else self._text(one) for one in elements)
            case ast.BinOp(left, ast.Add(), right):
                first, second = self._words(left), self._words(right)
                return None if first is None or second is None else first + second
            case ast.Name(name):
                known = self._known(name)
                return known if isinstance(known, tuple) else None
            case ast.Call(ast.Attribute(value, "split"), []):
                return tuple(self._text(value).split())
        return None

    def _text(self, node: ast.expr) -> str:
        """Return what an expression's text is, UNKNOWN for what is not known of it."""
        self._spend(_PER_PART)
        match node:
            case ast.Constant(str() as text):
                return RESERVED.sub(UNKNOWN, text)
            case ast.Constant(bytes() as data):
                return data.decode("utf-8", "replace")
            case ast.Constant(value):
                return str(value)
            case ast.JoinedStr(parts):
                return "".join(map(self._text, parts))
            case ast.FormattedValue(value):
                return self._text(value)
            case ast.BinOp(left, ast.Add(), right):
                return self._text(left) + self._text(right)
            case ast.BinOp(left, ast.Div(), right):
                return posixpath.join(self._text(left), self._text(right))
            case ast.BinOp(left, ast.Mod(), _):
                return re.sub(r"%[sdr]", UNKNOWN, self._text(left))
            case ast.Name(name):
                known = self._known(name)
                return known if isinstance(known, str) else UNKNOWN
            case ast.Subscript(base, ast.Constant(str() as name)) if self._dotted(base) == "os.environ":
                return self._environ.get(name, UNKNOWN)
            case ast.Attribute(value, "parent"):
                return posixpath.dirname(self._text(value)) or UNKNOWN
            case ast.Attribute(value, "name"):
                return self._text(value)  # a temporary file's
            case ast.Call(function, arguments):
                return self._given(function, arguments)
        return UNKNOWN

    def _given(self, function: ast.expr, arguments: Sequence[ast.expr]) -> str:
        dotted = self._dotted(function)
        texts = [self._text(one) for one in arguments]
        if dotted in _PATHS or dotted in _JOINS:
            return posixpath.join("", *texts)
        if dotted in _SAME and texts:
            return texts[0]
        if dotted == "os.path.dirname" and texts:
            return posixpath.dirname(texts[0])
        if dotted in _TEMPORARY:
            return f"/{SCRATCH}"
        if dotted in ("os.getcwd", "pathlib.Path.cwd"):
            return self._cwd
        if dotted == "pathlib.Path.home":
            return self._home
        if dotted in ("os.getenv", "os.environ.get") and texts:
            return self._environ.get(texts[0], UNKNOWN)
        match function:
            case ast.Attribute(value, method) if method in _SAME_METHODS:
                return self._text(value)
            case ast.Attribute(value, "joinpath"):
                return posixpath.join(self._text(value), *texts)
            case ast.Attribute(value, "join") if len(arguments) == 1:
                return self._text(value).join(self._words(arguments[0]) or (UNKNOWN,))
            case ast.Attribute(value, "format"):
                return re.sub(r"\{[^{}]*\}", UNKNOWN, self._text(value))
        return UNKNOWN

    # -- what is done --------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> None:
        """Take every text that could be a path for one that is read."""
        if isinstance(node.value, str):
            self._mentioned(self._text(node))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Take a path that is put together for one that is read."""
        if isinstance(node.op, ast.Div | ast.Add):
            self._mentioned(self._text(node))
        self.generic_visit(node)

    def _mentioned(self, text: str) -> None:
        if "/" in text and "\n" not in text and len(text) <= _LONGEST_PATH:
            self._add((), reads=(self._path(text),))

    def visit_Call(self, node: ast.Call) -> None:
        """Take note of what a call does."""
        dotted = self._dotted(node.func)
        self._call(dotted.removeprefix("builtins."), node)
        self.generic_visit(node)

    def _call(self, dotted: str, node: ast.Call) -> None:
        arguments = node.args or [one.value for one in node.keywords if one.arg not in (None, "cwd", "shell", "env")]
        texts = [self._text(one) for one in arguments]
        options = {one.arg: one.value for one in node.keywords}
        cwd = self._path(self._text(options["cwd"])) if "cwd" in options else self._cwd
        first = texts[0] if texts else UNKNOWN
        if dotted in _AS_COMMANDS and texts:
            paths = texts[:1] if dotted in _FIRST_ONLY else texts[:2]
            self._add((*_AS_COMMANDS[dotted], "--", *map(self._path, paths)))
        elif dotted in _MODES and texts:
            self._add((_MODES[dotted], "0", self._path(first)))
        elif dotted in _OPENS or (dotted == "os.open" and len(texts) > 1):
            mode = self._text(options["mode"]) if "mode" in options else texts[1] if len(texts) > 1 else "r"
            if mode == UNKNOWN or set(mode) & set("wax+"):
                self._add((), writes=(self._path(first),))
            elif texts:
                self._add((), reads=(self._path(first),))
        elif dotted == "os.chdir":
            self._cwd = self._path(first)
        elif dotted in _SHELLS and texts:
            self.found += read_shell(first, cwd, self._home, self._environ)
        elif dotted in _STARTS and arguments:
            self._start(arguments[0], options, cwd)
        elif dotted == "asyncio.create_subprocess_exec" or re.fullmatch(r"os\.(exec|spawn)[lv]p?e?", dotted):
            words = next((found for one in arguments if (found := self._words(one)) is not None), None)
            skip = 0 if dotted.startswith("asyncio") else 2 if dotted.startswith("os.spawn") else 1
            self.found += read_words(words if words is not None else texts[skip:], cwd, self._home)
        elif dotted in ("exec", "eval", "compile") and texts:
            self.found += _read(first, self._cwd, self._environ, self._depth + 1)
        elif isinstance(node.func, ast.Attribute):
            self._method(node.func, texts, options)

    def _start(self, what: ast.expr, options: dict[str | None, ast.expr], cwd: str) -> None:
        given = self._text(options["input"]) if "input" in options else None
        words = self._words(what)
        if words is None and isinstance(what, ast.Call) and self._dotted(what.func) == "shlex.split" and what.args:
            what = what.args[0]
        if words is None:
            self.found += read_shell(self._text(what), cwd, self._home, self._environ)
        elif "shell" in options and words:
            self.found += read_shell(words[0], cwd, self._home, self._environ)
        else:
            self.found += read_words(words, cwd, self._home, given)

    def _method(self, function: ast.Attribute, texts: list[str], options: dict[str | None, ast.expr]) -> None:
        """Take note of what a path's method does; what has such a method may be something else."""
        method = function.attr
        if method in _METHODS:
            self._add((*_METHODS[method], "--", self._path(self._text(function.value))))
        elif method in ("rename", "replace") and len(texts) == 1:
            self._add(("mv", "--", self._path(self._text(function.value)), self._path(texts[0])))
        elif method == "open":
            mode = self._text(options["mode"]) if "mode" in options else texts[0] if texts else "r"
            if mode != UNKNOWN and len(mode) < 5 and set(mode) & set("wax+"):
                self._add((), writes=(self._path(self._text(function.value)),))

    def _path(self, text: str) -> str:
        if text == "~" or text.startswith("~/"):
            text = self._home + text[1:]
        return absolute(text, self._cwd)

    def _add(self, words: tuple[str, ...], *, writes: tuple[str, ...] = (), reads: tuple[str, ...] = ()) -> None:
        self.found.append(Command(words, self._cwd, writes, reads))
