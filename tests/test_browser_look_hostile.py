"""Pages that resist the eyes, that move, or that are very long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from gad.browser import eyes
from gad.core.page import Node
from gad.errors import BrowserError
from tests.looking import Eyes, controls, drawn, open_eyes, text_of
from tests.sites import Asked, Served


@pytest.fixture(scope="module")
def eye() -> Iterator[Eyes]:
    with open_eyes() as eye:
        yield eye


def test_a_page_cannot_disturb_the_eyes_by_overwriting_built_ins(eye: Eyes) -> None:
    page = eye.see(
        "<p>Text</p><button>Press</button><script>"
        "JSON.stringify = () => 'no'; Array.prototype.push = () => { throw 1 }; "
        "Element.prototype.getBoundingClientRect = () => null;"
        "document.querySelector = () => null; Document.prototype.createElement = () => null; "
        "window.getComputedStyle = () => null;"
        "Node.prototype.appendChild = () => { throw 1 }; Object.prototype.toJSON = () => 'no'; "
        "WeakMap.prototype.get = () => 1;"
        "Object.defineProperty(Node.prototype, 'firstChild', {get() { throw 1 }})</script>"
    )
    assert drawn(page.root) == "((Text)|(button(Press)))"


OF_NODES = (
    "parentNode children childNodes attributes tagName localName nodeType firstChild nextSibling "
    "getAttribute hasAttribute getBoundingClientRect matches querySelector querySelectorAll innerText "
    "textContent shadowRoot assignedSlot clientLeft offsetWidth scrollTop checkVisibility contains "
    "getRootNode isConnected id style firstElementChild nextElementSibling childElementCount tabIndex "
    "hidden"
)
OF_DOCUMENTS = (
    "body documentElement activeElement title createElement querySelector scrollingElement elementFromPoint "
    "contentType createRange getElementById designMode"
)


def test_named_controls_that_shadow_properties_do_no_harm(eye: Eyes) -> None:
    inputs = "".join(f"<input name={name} value={name}>" for name in OF_NODES.split())
    images = "".join(f"<img name={name} alt={name} width=9 height=9>" for name in OF_DOCUMENTS.split())
    page = eye.see(
        f"<form onclick='1' style='position:relative;overflow:auto'>{inputs}<p>Text</p></form>{images}<p>End</p>"
    )
    assert [node.value for node in page.root.walk() if node.kind == "input"] == OF_NODES.split()
    assert text_of(page.root).endswith("End")


def test_nothing_of_the_look_can_be_noticed_by_the_page(eye: Eyes) -> None:
    eye.open(
        "<p>Text</p><form><input value=1></form><script>window.noticed = 0;"
        "new MutationObserver(() => noticed++).observe(document, {subtree: true, childList: true, "
        "attributes: true, characterData: true});"
        "window.before = Object.keys(window).length</script>"
    )
    eye.look()
    eye.loop.run(eyes.watch(eye.tab))
    eye.loop.run(eyes.watched(eye.tab))
    assert eye.run("[noticed, Object.keys(window).length - before]") == [0, 1]


def test_a_page_that_leaves_while_it_is_looked_at(eye: Eyes) -> None:
    gate = threading.Event()

    def second(asked: Asked) -> Served:
        return Served("<title>Two</title><p>Arrived</p>", wait=gate)

    eye.site.pages["/second"] = second
    eye.open(
        "<p>Leaving</p><iframe srcdoc='<p>in</p>'></iframe><script>location.href = '/second'</script>", wait="commit"
    )

    async def both() -> list[eyes.Look]:
        looks = [asyncio.ensure_future(eyes.look(eye.tab, after=0)) for _ in range(8)]
        gate.set()
        return list(await asyncio.gather(*looks))

    looks = eye.loop.run(both())
    assert all(
        text_of(look.page.root).startswith(("Leaving", "Arrived")) or not look.page.root.children for look in looks
    )
    eye.loop.run(eye.tab.wait_for_selector("text=Arrived"))
    assert text_of(eye.look().page.root) == "Arrived"


def test_a_page_that_was_closed_says_so(eye: Eyes) -> None:
    async def closed() -> None:
        browser = eye.tab.context.browser
        assert browser is not None
        tab = await browser.new_page()
        await tab.close()
        with pytest.raises(BrowserError, match="cannot be looked at"):
            await eyes.look(tab, after=0)
        with pytest.raises(BrowserError, match="cannot be watched"):
            await eyes.watch(tab)

    eye.loop.run(closed())


def test_a_deep_page(eye: Eyes) -> None:
    eye.open("<div id=d></div>")
    eye.run(
        "{ let at = d; for (let i = 0; i < 1500; i++) { const div = document.createElement('div'); "
        "at.append(div); at = div } at.append('Bottom') }"
    )
    assert text_of(eye.look().page.root) == "Bottom"


def test_a_long_page_is_read_and_cut_with_a_mark(eye: Eyes) -> None:
    rows = "".join(
        f"<li class=row><div><span class=n>{i}</span><a href='/item/{i}?reference={i * 7919}'>Item number {i}"
        f"</a> <b>costs {i} euros</b></div></li>"
        for i in range(8_000)
    )
    paragraphs = "".join(f"<p>Paragraph {i}: {'some words of prose that go on ' * 12}</p>" for i in range(8_000))
    html = f"<h1>Long</h1><ul id=l>{rows}</ul><div>{paragraphs}</div><p>End</p>"
    assert len(html) > 4_000_000
    eye.open(html)
    page = eye.look().page
    more = [node for node in page.root.walk() if node.kind == "more"]
    assert (more[0].selector, more[0].count) == ("#l > li", 8_000 - 20)
    assert any("too long" in remark for remark in page.remarks)
    assert "Paragraph 10:" in text_of(page.root)


def test_a_list_that_never_ends(eye: Eyes) -> None:
    eye.open(
        "<ul id=l></ul><script>let n = 0; const add = () => { for (let i = 0; i < 20; "
        "i++) l.append(Object.assign(document.createElement('li'),"
        " {textContent: 'Item ' + n++})) }; setInterval(add, 5); add()</script>"
    )
    first, second = (eye.look().page for _ in range(2))
    assert len(list(second.root.walk())) >= len(list(first.root.walk())) > 15


def test_names_that_every_object_has_are_names_like_others(eye: Eyes) -> None:
    page = eye.see("<constructor>A</constructor><p role=constructor>B</p><p role=__proto__>C</p><b role=toString>D</b>")
    assert drawn(page.root) == "((A)|(B)|(C)|(D))"


def test_very_long_attributes_and_titles_are_cut(eye: Eyes) -> None:
    eye.open(
        "<button id=b>B</button><a id=a>A</a><input aria-labelledby=l><p id=l style='display:none'></p>"
        "<img id=i src=x width=50 height=50><select><option id=o></select><input id=p>"
        "<div id=d><p>1<p>2</div>"
    )
    eye.run(
        "{ const long = 'x '.repeat(50_000); b.ariaLabel = long; a.href = 'y'.repeat(100_000); "
        "l.textContent = long;"
        "i.alt = long; o.label = long; p.placeholder = long; p.title = long; document.title = long; "
        "d.className = long; d.append(...Array.from({length: 9}, () => Object.assign(document.createElement('div'), "
        "{className: long, innerHTML: '<a href=z>z</a>'}))) }"
    )
    page = eye.look().page
    assert len(controls(page)) == 14
    longest = max(len(repr(node)) for node in page.root.walk() if not any(isinstance(c, Node) for c in node.children))
    assert longest < 3000
    assert len(page.title) <= 301


def test_reactions_and_getters_of_custom_elements_do_not_run(eye: Eyes) -> None:
    eye.open(
        "<x-r a=1 tabindex=0 style='cursor:pointer'>Text</x-r><script>window.ran = [];"
        "customElements.define('x-r', class extends HTMLElement { static observedAttributes = ['a', 'class', 'style'];"
        "attributeChangedCallback() { ran.push('attribute') }"
        "get value() { ran.push('value') } get labels() { ran.push('labels') }"
        "get tabIndex() { ran.push('tabIndex') }});"
        "ran.length = 0</script>"
    )
    assert drawn(eye.look().page.root) == "(control[type=clickable](Text))"
    eye.loop.run(eyes.watch(eye.tab))
    assert eye.run("ran") == []


def test_a_polluted_prototype_is_not_seen(eye: Eyes) -> None:
    page = eye.see(
        "<script>Object.prototype.like = 'x'; Object.prototype.label = 'boo'; Array.prototype.at = () => { throw 1 };"
        "Object.defineProperty(Object.prototype, 'ref', {get() { throw 1 }})</script><p>Fine <a href=x>link</a></p>"
    )
    assert drawn(page.root) == "(Fine |link(link))"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("document.body.remove()", ""),
        ("document.documentElement.remove()", ""),
        ("document.documentElement.append(document.createElement('body')); "
         "document.documentElement.lastChild.append('Second')", "((Text)|(Second))"),
        ("{ const image = document.createElement('img'); image.name = 'host'; document.body.append(image) }", "(Text)"),
        ("{ let at = document.body; for (let i = 0; i < 300; i++) { const div = document.createElement('div');"
         "at.append(div); at = div.attachShadow({mode: 'open'}) } at.append('Deep') }", "((Text)|(Deep))"),
    ],
    ids=["no-body", "nothing", "two-bodies", "host", "roots-in-roots"],
)  # fmt: skip
def test_documents_of_odd_make(eye: Eyes, script: str, told: str) -> None:
    eye.open("<p>Text</p>")
    eye.run(script)
    assert drawn(eye.look().page.root).removeprefix("block") == told
    eye.loop.run(eyes.watch(eye.tab))
    assert eye.loop.run(eyes.watched(eye.tab)) is not None


@pytest.mark.parametrize(
    ("served", "told"),
    [
        (Served("<html xmlns='http://www.w3.org/1999/xhtml'><body><p>Hi <a href='x'>l</a></p><![CDATA[data]]>"
                "</body></html>",
                type="application/xhtml+xml"), "((Hi |link(l))|(data))"),
        (Served("<body style='overflow:auto'><div style='height:3000px'>Top</div><p>End"), "((Top)|(End))"),
        (Served(""), ""),
    ],
    ids=["xhtml", "quirks", "empty"],
)  # fmt: skip
def test_documents_of_other_modes(eye: Eyes, served: Served, told: str) -> None:
    eye.open(served)
    assert drawn(eye.look().page.root) == told


def test_addresses_are_those_that_the_base_makes(eye: Eyes) -> None:
    page = eye.see("<a href=y>l</a>", head="<base href='http://example.com/dir/'>")
    assert controls(page)[0].url == "http://example.com/dir/y"


def test_a_page_that_changes_in_every_frame(eye: Eyes) -> None:
    eye.open(
        "<p id=p>0</p><p>End</p><script>let n = 0; const change = () => { p.textContent = n++;"
        "document.body.style.width = 500 + n % 100 + 'px'; document.body.className = 'c' + n;"
        "requestAnimationFrame(change) }; change()</script>"
    )
    assert text_of(eye.look().page.root).endswith("End")
    eye.loop.run(eyes.watch(eye.tab))
    eye.run(
        "new Promise((done) => {const from = n; const wait = () => n > from + 10 ? done() : setTimeout(wait); wait() })"
    )
    watched = eye.loop.run(eyes.watched(eye.tab))
    assert watched is not None
    assert len(watched.brief) <= 3


def test_a_look_does_not_differ_from_the_next(eye: Eyes) -> None:
    eye.open("<div style='position:absolute;inset:0'><a href=x>text</a></div>" * 3000)
    assert eye.look().page == eye.look().page


def test_a_page_of_too_many_elements_is_shown_up_to_some(eye: Eyes) -> None:
    eye.open("<p>Start</p><div id=d></div>")
    eye.run("d.innerHTML = '<i></i>'.repeat(151_000)")
    page = eye.look().page
    assert text_of(page.root) == "Start"
    assert page.remarks == ("the page is too long: only its first 150,000 elements are shown",)


def test_cells_that_span_everything(eye: Eyes) -> None:
    spans = "<td rowspan=65000 colspan=1000>t" * 20
    page = eye.see(f"<table><tr><th>x</th>{spans}</tr>{'<tr><td>a<td>b' * 500}</table>")
    assert len(list(page.root.walk())) < 3000
