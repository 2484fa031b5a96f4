"""Running a script in a page: its value, its errors, what it sets off, and that it always ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.script_runs import Runs, text_of
from tests.sites import Served, Site

# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("1 + 1", 2),
        ("'\u00e9\u4e2d'", "\u00e9\u4e2d"),
        ("null", None),
        ("[undefined, null, true]", [None, None, True]),
        ("[NaN, Infinity, -Infinity, -0, 1.5]", ["NaN", "Infinity", "-Infinity", 0, 1.5]),
        ("NaN", "NaN"),
        ("2n ** 64n", 2**64),
        ("[2n ** 64n]", [2**64]),
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("new Map([['a', 1], ['b', new Set([1, 2])]])", {"a": 1, "b": [1, 2]}),
        ("new Map([[{k: 1}, 2], ['a', 3]])", [[{"k": 1}, 2], ["a", 3]]),
        ("/a+/gi", "/a+/gi"),
        ("new TypeError('oh')", "TypeError: oh"),
        ("[{status: 'rejected', reason: new Error('no')}]", [{"status": "rejected", "reason": "Error: no"}]),
        ("new DOMException('gone', 'AbortError')", "AbortError: gone"),
        ("[function f() {}, () => 0]", ["[function f]", "[function]"]),
        ("new Uint8Array([1, 2, 255])", [1, 2, 255]),
        ("({a: new Float64Array([0.5])})", {"a": [0.5]}),
        ("window", "[window]"),
        ("document", "[document]"),
        ("document.querySelector('a')", '<a#l.x.y href="/q">'),
        ("document.querySelectorAll('a, p')", ["<p>", '<a#l.x.y href="/q">']),
        ("document.links", ['<a#l.x.y href="/q">']),
        ("document.querySelector('p').firstChild", "text"),
        ("({top: new DOMRect(1, 2, 3, 4)})", {"top": {
            "x": 1, "y": 2, "width": 3, "height": 4, "top": 2, "right": 4, "bottom": 6, "left": 1}}),
        ("const a = {n: 1}; a.self = a; a", {"n": 1, "self": "[circular]"}),
        ("const s = [1]; ({a: s, b: s})", {"a": [1], "b": [1]}),
        ("let d = 0; for (let i = 0; i < 14; i++) d = [d]; d", [[[[[[[[[[[["[...]"]]]]]]]]]]]]),
        ("Symbol('s')", "[symbol]"),
        ("await Promise.resolve([1])", [1]),
        ("Promise.resolve(7)", 7),
        ("let x = 1; { x += 2 } x // a comment at the end", 3),
        ("function f() { return 4 } f()", 4),
        ("if (1) { 'yes' } else { 'no' }", "yes"),
        ("return {a: await 5}", {"a": 5}),
        ("if (document.body) return [1]; return [2]", [1]),
        ("return null", None),
    ],
)  # fmt: skip
def test_the_value_of_a_script_is_json(at_rest: Runs, script: str, value: Any) -> None:
    done = at_rest.run(script)
    assert (done.error, done.value, done.returned) == ("", value, True)


@pytest.mark.parametrize("script", ["undefined", "let x = 1", "return", "return undefined", "await 0; void 1"])
def test_a_script_without_a_value_returns_none(at_rest: Runs, script: str) -> None:
    done = at_rest.run(script)
    assert (done.error, done.value, done.returned) == ("", None, False)


@pytest.mark.parametrize(
    "script",
    [
        "'x'.repeat(21_000_000)",
        "Array.from({length: 900}, () => 'y'.repeat(60_000))",
        "return 'z'.repeat(50_000_000)",
        "let bomb = ['0123456789']; for (let i = 0; i < 11; i++) bomb = [bomb, bomb, bomb, bomb, bomb, bomb]; bomb",
    ],
)
def test_a_value_that_is_too_large_is_an_error_and_harms_nothing(at_rest: Runs, script: str) -> None:
    done = at_rest.run(script)
    assert done.error.startswith("the value is too large") and done.value is None
    assert at_rest.run("1").value == 1


def test_scripts_share_nothing_but_what_they_put_on_the_window(page: Runs, site: Site) -> None:
    page.open(site.url())
    page.run("const kept = 1; window.mine = 2")
    assert page.run("[typeof kept, mine]").value == ["undefined", 2]
    assert page.run("const kept = 3; kept").value == 3


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("let a = 1;\n\nnope()", "ReferenceError: nope is not defined (line 3:1)"),
        ("  nope()", "ReferenceError: nope is not defined (line 1:3)"),
        ("let a =;\n1", "SyntaxError: Unexpected token ';' (line 1:8)"),
        ("let a = 1;\nfoo bar", "SyntaxError: Unexpected identifier 'bar' (line 2:5)"),
        ("if (1) {\n  2", "SyntaxError: Unexpected end of input (line 2:4)"),
        ("await 1;\nawait Promise.reject(new Error('no\\nway'))", "Error: no\nway (line 2:22)"),
        ("return new Promise((_, no) => no(new Error('late')))", "Error: late (line 1:34)"),
        ("Promise.reject(new Error('unawaited'))", "Error: unawaited (line 1:16)"),
        ("throw 'text'", "thrown: text"),
        ("throw {code: 5}", "thrown: {'code': 5}"),
        ("return 1;\nnope(", "SyntaxError: Unexpected token '}' (line 2:6)"),
        ("// one\n[1].map(\n  x => x.y.z)", "TypeError: Cannot read properties of undefined (reading 'z') (line 3:12)"),
        ("pageFunction()", "Error: thrown by the page (line 1:1)"),
    ],
)
def test_errors_tell_the_line_of_the_script(at_rest: Runs, script: str, error: str) -> None:
    done = at_rest.run(script)
    assert (done.error, done.returned) == (error, False)


def test_a_return_in_code_that_is_evaluated_does_not_run_the_script_twice(page: Runs, site: Site) -> None:
    page.open(site.url())
    page.run("window.runs = 0")
    assert "Illegal return" in page.run("window.runs++; eval('return 1')").error
    assert page.run("window.runs").value == 1


# -- pages that are in the way -------------------------------------------------------------------

HOSTILE = """<p>hostile</p><a href=/two>next</a><script>
    const bad = () => { throw new Error('overwritten') };
    JSON.stringify = JSON.parse = bad;
    for (const type of [Array, String, Function, Map, Set, Date, RegExp, Number, Object])
        for (const name of Object.getOwnPropertyNames(type.prototype))
            if (name !== 'constructor' && typeof type.prototype[name] === 'function') type.prototype[name] = bad;
    Promise.prototype.then = bad;
    for (const name of ['Promise', 'Array', 'Map', 'Set', 'WeakSet', 'Error', 'eval', 'Function']) window[name] = bad;
</script>"""


def test_a_page_that_overwrites_everything_changes_no_value(page: Runs, site: Site) -> None:
    site.pages["/"] = HOSTILE
    page.open(site.url())
    done = page.watch("const v = await (async () => ({a: [1, 'x', null], b: document.links}))(); v")
    assert (done.error, done.value) == ("", {"a": [1, "x", None], "b": ['<a href="/two">']})
    done = page.watch("return {late: await 1}")
    assert (done.error, done.value) == ("", {"late": 1})
    assert text_of(done.after).startswith("hostile")


def test_a_strict_content_security_policy_does_not_matter(page: Runs, site: Site) -> None:
    policy = {"content-security-policy": "default-src 'none'; require-trusted-types-for 'script'"}
    site.pages["/"] = Served("<p>strict</p>", headers=policy)
    page.open(site.url())
    assert page.watch("await 1; document.querySelector('p').textContent").value == "strict"
    assert page.watch("return [await 2]").value == [2]
