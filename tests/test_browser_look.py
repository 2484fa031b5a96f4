"""What the eyes see of a page, in real Chromium on pages that stand here."""

from __future__ import annotations

import asyncio
import random
import re
import struct
import threading
import time
import zlib
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, Playwright, async_playwright
from playwright.async_api import Page as Tab

from gad.browser import eyes
from gad.core.page import CONTROLS, Node, Page
from gad.errors import BrowserError
from tests.sites import Asked, Loop, Served, Site

CHROMIUM = "/usr/bin/chromium"


class Eyes:
    """One tab of one browser, and a site whose pages the tests set."""

    def __init__(self, loop: Loop, site: Site, tab: Tab) -> None:
        self.loop = loop
        self.site = site
        self.tab = tab

    def open(self, html: str | Served, path: str = "/", *, head: str = "", wait: str = "load") -> None:
        self.site.pages[path] = (
            f"<!doctype html><html><head>{head}</head><body>{html}</body></html>" if isinstance(html, str) else html
        )
        self.loop.run(self.tab.goto(self.site.url(path), wait_until=wait))  # type: ignore[arg-type]

    def see(self, html: str | Served, *, head: str = "", after: int = 0) -> Page:
        self.open(html, head=head)
        return self.look(after).page

    def look(self, after: int = 0) -> eyes.Look:
        return self.loop.run(eyes.look(self.tab, after=after))

    def run(self, script: str) -> object:
        return self.loop.run(self.tab.evaluate(script))


@pytest.fixture(scope="module")
def eye() -> Iterator[Eyes]:
    with Loop() as loop, Site() as site:

        async def start() -> tuple[Playwright, Browser, Tab]:
            playwright = await async_playwright().start()
            await eyes.install(playwright)
            browser = await playwright.chromium.launch(executable_path=CHROMIUM)
            return playwright, browser, await browser.new_page(viewport={"width": 1000, "height": 700})

        async def stop() -> None:
            await browser.close()
            await playwright.stop()

        playwright, browser, tab = loop.run(start())
        yield Eyes(loop, site, tab)
        loop.run(stop())


def text_of(node: Node) -> str:
    """All that a node says, in the order of the page, blocks on lines of their own."""
    parts: list[str] = []

    def visit(node: Node) -> None:
        block = node.kind not in CONTROLS and node.kind not in ("image", "mark", "break")
        if block or node.kind == "break":
            parts.append("\n")
        parts.extend([node.label] if node.label else [])
        for child in node.children:
            if isinstance(child, str):
                parts.append(child)
            else:
                visit(child)
        if block:
            parts.append("\n")

    visit(node)
    return re.sub(r"\n+", "\n", "".join(parts)).strip("\n")


def drawn(node: Node | str) -> str:
    """A node on one line: `kind[attributes](children)`, a block without attributes as `(children)`."""
    if isinstance(node, str):
        return node
    attributes = [
        f"{name}={value if isinstance(value, str) else ','.join(value)}"
        for name in ("type", "label", "value", "hint", "state", "options")
        if (value := getattr(node, name))
    ]
    inner = "|".join(drawn(child) for child in node.children)
    shown = f"[{' '.join(attributes)}]" if attributes else ""
    return f"{'' if node.kind == 'block' else node.kind}{shown}" + (f"({inner})" if node.children else "")


def controls(page: Page) -> list[Node]:
    return [node for node in page.root.walk() if node.kind in CONTROLS]


def only(page: Page, kind: str) -> Node:
    found = [node for node in page.root.walk() if node.kind == kind]
    assert len(found) == 1, found
    return found[0]


# -- what can be seen --------------------

SPACER = "<div style='height:30px'></div>"

HIDDEN = {
    "display": "<p style='display:none'>HIDDEN</p>",
    "attribute": "<p hidden>HIDDEN</p>",
    "visibility": "<div style='visibility:hidden'>HIDDEN <b style='visibility:visible'>SEEN</b></div>",
    "collapse": "<p style='visibility:collapse'>HIDDEN</p>",
    "opacity": "<div style='opacity:0'><p>HIDDEN <a href=x>HIDDEN</a></p></div>",
    "content-visibility": "<div style='content-visibility:hidden'>HIDDEN</div>",
    "content-visibility-auto": "<div style='height:3000px'></div><div style='content-visibility:auto'>SEEN</div>",
    "details": "<details><summary>SEEN</summary><p>HIDDEN</p></details>",
    "details-open": "<details open><summary>SEEN1</summary><p>SEEN2</p></details>",
    "font-size": "<p style='font-size:0'>HIDDEN</p>",
    "text-indent": "<p style='text-indent:-9999px'>HIDDEN</p>",
    "off-left": "<p style='position:absolute;left:-2000px'>HIDDEN</p>",
    "off-top": "<p style='position:absolute;top:-500px'>HIDDEN</p>",
    "off-right-reachable": "<p style='position:absolute;left:3000px;width:100px'>SEEN</p>",
    "off-right-clipped": "<style>body{overflow-x:hidden}</style><p style='position:absolute;left:3000px'>HIDDEN</p>",
    "below-the-fold": "<div style='height:5000px'></div><p>SEEN</p>",
    "sr-only-clip": "<span style='position:absolute;width:1px;height:1px;overflow:hidden;"
    "clip:rect(0,0,0,0)'>HIDDEN</span>",
    "sr-only-path": "<span style='position:absolute;clip-path:inset(50%)'>HIDDEN</span>",
    "sr-only-size": "<div style='width:1px;height:1px;overflow:hidden'>HIDDEN</div>",
    "scale": "<p style='transform:scale(0)'>HIDDEN</p>",
    "accordion": "<div style='max-height:0;overflow:hidden'><p>HIDDEN</p></div>",
    "accordion-grid": "<div style='display:grid;grid-template-rows:0fr'>"
    "<div style='overflow:hidden;min-height:0'>HIDDEN</div></div>",
    "carousel": "<div style='width:200px;overflow:hidden'><div style='display:flex'>"
    "<p style='flex:0 0 200px'>SEEN</p><p style='flex:0 0 200px'>HIDDEN</p></div></div>",
    "carousel-moved": "<div style='width:200px;overflow:hidden'><div style='display:flex;transform:translateX(-200px)'>"
    "<p style='flex:0 0 200px'>HIDDEN</p><p style='flex:0 0 200px'>SEEN</p></div></div>",
    "carousel-scroll": "<div style='width:200px;overflow-x:auto'><div style='display:flex'>"
    "<p style='flex:0 0 200px'>SEEN1</p><p style='flex:0 0 200px'>SEEN2</p></div></div>",
    "scroller": "<div style='height:50px;overflow:auto'><div style='height:500px'></div><p>SEEN</p></div>",
    "scroller-in-collapsed": "<div style='height:0;overflow:hidden'><div style='height:50px;overflow:auto'>HIDDEN"
    "</div></div>",
    "before-scroller": "<div style='height:50px;overflow:auto;position:relative'>"
    "<p style='position:absolute;top:-90px'>HIDDEN</p>x</div>",
    "escapes-clip": "<div style='height:0;overflow:hidden'><p style='position:absolute'>SEEN</p></div>",
    "does-not-escape": "<div style='height:0;overflow:hidden;position:relative'>"
    "<p style='position:absolute'>HIDDEN</p></div>",
    "fixed-escapes": "<div style='height:0;overflow:hidden;position:relative'>"
    "<p style='position:fixed;top:200px'>SEEN</p></div>",
    "fixed-in-transform": "<div style='height:0;overflow:hidden;transform:translateX(0)'>"
    "<p style='position:fixed;top:200px'>HIDDEN</p></div>",
    "contents": "<div style='display:contents'><p>SEEN</p></div>",
    "zero-height": "<div style='height:0'><p>SEEN</p></div>",
    "scripts": "<script>'HIDDEN'</script><style>/*HIDDEN*/</style><template>HIDDEN</template><noscript>HIDDEN"
    "</noscript>SEEN",
    "behind": "<div style='position:relative;height:80px'><p>HIDDEN</p>"
    "<div style='position:absolute;inset:0;background:white'>SEEN</div></div>",
    "behind-glass": "<div style='position:relative;height:80px'><p>SEEN</p>"
    "<a href=x style='position:absolute;inset:0'></a></div>",
    "behind-sticky": "<p>SEEN1</p>"
    "<div style='position:fixed;top:0;left:0;right:0;height:90px;background:white'>SEEN2</div>",
    "stretched-link": "<div style='position:relative;height:80px'><p>SEEN</p>"
    "<a href=x style='display:block'>SEEN2<i style='position:absolute;inset:0'></i></a></div>",
    "no-pointer-events": "<div style='position:relative;height:60px'>"
    "<div style='position:absolute;inset:0;background:red'></div>"
    "<p style='position:absolute;pointer-events:none'>SEEN</p></div>",
    "stack": "".join(
        f"<div style='position:absolute;top:300px;left:0;width:300px;height:60px;background:#fff;"
        f"z-index:{z}'>{word}</div>"
        for z, word in ((1, "HIDDEN"), (3, "SEEN"), (2, "HIDDEN"))
    ),
    "canvas": "<canvas>HIDDEN</canvas>",
    "video": "<video>HIDDEN</video>",
    "advertisement": "<ins class=adsbygoogle>HIDDEN</ins><div id=div-gpt-ad-1>HIDDEN</div>"
    "<div aria-label=Anzeige>HIDDEN</div>"
    "<div id=taboola-below>HIDDEN</div><p>SEEN ad</p>",
    "svg": "<svg width=50 height=20><title>HIDDEN</title><desc>HIDDEN</desc><rect width=5 height=5 /></svg><p>SEEN</p>",
}  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_what_a_person_cannot_see_is_not_there_and_what_they_can_see_is(eye: Eyes, name: str) -> None:
    page = eye.see(f"{SPACER}<p>first</p>{HIDDEN[name]}{SPACER}<p>last</p>")
    said = " ".join(text_of(node) for node in [page.root])
    if name == "svg":
        said = said.replace("image", "")
        assert [node.label for node in page.root.walk() if node.kind == "image"] == ["HIDDEN"]
        said = "".join(child for node in page.root.walk() for child in node.children if isinstance(child, str))
    assert "HIDDEN" not in said
    assert set(re.findall(r"SEEN\d?", said)) == set(re.findall(r"SEEN\d?", HIDDEN[name]))
    assert "last" in said


def test_text_below_the_scrolled_position_and_above_it_is_there(eye: Eyes) -> None:
    eye.open("<p>top</p><div style='height:4000px'></div><p>bottom</p>")
    eye.run("scrollTo(0, 4000)")
    assert drawn(eye.look().page.root) == "((top)|(bottom))"


def test_a_scrolled_box_keeps_what_is_above_and_below(eye: Eyes) -> None:
    eye.open(
        "<div id=s style='height:50px;overflow:auto'><p>top</p><div style='height:400px'></div><p>bottom</p></div>"
    )
    eye.run("document.getElementById('s').scrollTop = 200")
    assert drawn(eye.look().page.root) == "((top)|(bottom))"


# -- what lies over the page --------------------

LONG = "".join(f"<p>Paragraph {i} of the page, with <a href=/{i}>link {i}</a>.</p>" for i in range(40))
COVER = "position:fixed;inset:0;z-index:9;background:rgba(0,0,0,.5)"


@pytest.mark.parametrize(
    "overlay",
    [
        f"<div style='{COVER}'><div style='background:white;margin:100px'><h2>Hello</h2><button>Close</button>"
        f"</div></div>",
        f"<div style='{COVER}'></div>"
        f"<div style='position:fixed;z-index:10;top:100px;left:100px;width:300px;background:white'>"
        "<h2>Hello</h2><button>Close</button></div>",
        "<dialog id=d><h2>Hello</h2><button>Close</button></dialog><script>d.showModal()</script>",
        f"<div><div style='{COVER}' role=dialog aria-modal=true><h2>Hello</h2><button>Close</button></div></div>",
    ],
    ids=["one-element", "backdrop-beside", "dialog-element", "nested"],
)
def test_an_overlay_over_everything_is_all_there_is(eye: Eyes, overlay: str) -> None:
    page = eye.see(LONG + overlay)
    assert text_of(page.root) == "Hello\nClose"
    assert len(page.remarks) == 1
    assert re.search(r"covers the page: 1,\d\d\d characters and 40 controls", page.remarks[0])


@pytest.mark.parametrize(
    "overlay",
    [
        "<div style='position:fixed;bottom:0;left:0;right:0;height:200px;background:white'>Cookies <button>OK"
        "</button></div>",
        "<div style='position:sticky;top:0;background:white'>Cookies <button>OK</button></div>",
        "<dialog open>Cookies <button>OK</button></dialog>",
        "<div style='position:fixed;inset:0;pointer-events:none'></div>Cookies <button>OK</button>",
        "<div style='position:fixed;inset:0;z-index:-1;background:silver'></div>Cookies <button>OK</button>",
    ],
    ids=["bar", "sticky", "plain-dialog", "untouchable", "backdrop-behind"],
)
def test_what_covers_a_part_hides_nothing(eye: Eyes, overlay: str) -> None:
    page = eye.see(overlay + LONG)
    said = text_of(page.root)
    assert all(f"link {i}" in said for i in range(40))
    assert "Cookies" in said
    assert page.remarks == ()


def test_a_picture_that_fills_the_first_screen_does_not_cover_what_follows(eye: Eyes) -> None:
    page = eye.see(
        "<div style='position:fixed;inset:0;background:silver'><h1>Hero</h1></div>"
        f"<div style='position:relative;margin-top:700px;background:white;z-index:1'>{LONG}</div>"
    )
    assert "link 39" in text_of(page.root)
    assert "Hero" in text_of(page.root)


def test_an_application_that_lies_in_a_fixed_box_is_the_page(eye: Eyes) -> None:
    page = eye.see(f"<div style='position:fixed;inset:0;overflow:auto'>{LONG}</div><p>x</p>")
    assert "link 39" in text_of(page.root)


def test_an_overlay_that_holds_a_frame(eye: Eyes) -> None:
    page = eye.see(
        f"<p>Words</p><div style='{COVER};display:flex'><iframe srcdoc='<button>Accept</button>' style='margin:auto'>"
        "</iframe></div>"
    )
    assert drawn(page.root) == "(frame(button(Accept)))"
    assert page.remarks == ("an overlay covers the page: 5 characters and 0 controls behind it are not shown",)


def test_panels_on_a_map_are_kept(eye: Eyes) -> None:
    page = eye.see(
        "<style>body{overflow:hidden}</style><div style='position:absolute;inset:0;background:green'>Map</div>"
        "<div style='position:absolute;top:50px;left:50px;width:60px;background:white'><button>Zoom</button></div>"
    )
    assert text_of(page.root) == "Map\nZoom"


def test_controls_that_are_inert_have_no_ref_and_a_remark(eye: Eyes) -> None:
    page = eye.see("<div inert><p>Words</p><button>Off</button></div><button>On</button>")
    assert [(node.ref > 0, node.state) for node in controls(page)] == [(False, ("disabled",)), (True, ())]
    assert page.remarks == ("1 controls are inert: they cannot be used at the moment",)


# -- shadow roots and frames --------------------


def test_open_shadow_roots_are_shown_with_what_their_slots_hold(eye: Eyes) -> None:
    page = eye.see(
        "<x-card><b slot=title>Title</b>Body <i>text</i><u slot=none>not slotted</u></x-card><script>"
        "const root = document.querySelector('x-card').attachShadow({mode: 'open'});"
        "root.innerHTML = '<h2><slot name=title></slot></h2><div><slot></slot></div><slot name=other>Fallback</slot>"
        "<x-in></x-in>';"
        "root.querySelector('x-in').attachShadow({mode:'open'}).innerHTML = '<p><button>Deep</button></p>'</script>"
    )
    assert drawn(page.root) == "(h2(Title)|(Body text)|(Fallback)|(button(Deep)))"


def frame_page(eye: Eyes) -> None:
    eye.site.pages["/in"] = (
        "<p>Inside</p><button onclick='document.title=1'>In</button><iframe width=90 height=90 src=/deep></iframe>"
    )
    eye.site.pages["/deep"] = "<p>Deep</p><input value=7>"
    other = eye.site.url("/in", host="b.localhost")
    eye.open(
        f"<p>Out</p><iframe src=/deep></iframe><iframe src='{other}' width=300 height=300></iframe>"
        "<iframe sandbox srcdoc='<p>Sandboxed</p>'></iframe><iframe src=/deep width=1 height=1></iframe>"
        "<iframe src=/deep style='display:none'></iframe><iframe src='https://x.doubleclick.net/ad'></iframe>"
        "<button>Last</button>"
    )


def test_frames_of_this_and_other_sites_are_part_of_the_page(eye: Eyes) -> None:
    frame_page(eye)
    look = eye.look()
    assert drawn(look.page.root) == (
        "((Out)|frame((Deep)|(input[type=text "
        "value=7]))|frame((Inside)|(button(In))|frame((Deep)|(input[type=text value=7])))"
        "|frame(Sandboxed)|(button(Last)))"
    )
    refs = [node.ref for node in look.page.root.walk() if node.ref]
    assert len(refs) == len(set(refs)) == 8
    assert look.last == max(refs)
    frames = [node for node in look.page.root.walk() if node.kind == "frame"]
    assert frames[1].url == eye.site.url("/in", host="b.localhost")

    async def press() -> object:
        button = next(node.ref for node in look.page.root.walk() if node.kind == "button" and node.children == ("In",))
        found = await eyes.find(eye.tab, button)
        await found.click()
        return await found.evaluate("() => document.title")

    assert eye.loop.run(press()) == "1"


def test_a_frame_that_never_loads_does_not_hold_up_the_page(eye: Eyes, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(eyes, "PING_SECONDS", 0.5)
    eye.site.pages["/never"] = Served("late", wait=never)
    try:
        eye.open(
            f"<p>Out</p><iframe src='{eye.site.url('/never', host='c.localhost')}'></iframe><p>End</p>", wait="commit"
        )
        eye.loop.run(eye.tab.wait_for_selector("text=End"))
        began = time.monotonic()
        page = eye.look().page
        assert time.monotonic() - began < 3
        assert drawn(page.root).startswith("((Out)|frame")
        assert drawn(page.root).endswith("|(End))")
    finally:
        never.set()


def test_a_document_of_frames_only(eye: Eyes) -> None:
    eye.site.pages["/a"] = "<p>Left</p>"
    eye.site.pages["/b"] = "<p>Right</p>"
    page = eye.see(Served("<frameset cols='50%,50%'><frame src=/a><frame src=/b></frameset>"))
    assert drawn(page.root) == "(frame(Left)|frame(Right))" or text_of(page.root) == "Left\nRight"


def test_refs_stay_with_their_elements_and_new_ones_are_higher(eye: Eyes) -> None:
    eye.open("<button id=a>A</button>")
    first = eye.look(after=10)
    assert [node.ref for node in controls(first.page)] == [11]
    eye.run("document.body.insertAdjacentHTML('afterbegin', '<button>B</button>')")
    second = eye.look(after=50)
    assert [(node.children[0], node.ref) for node in controls(second.page)] == [("B", 51), ("A", 11)]
    assert second.last == 51
    eye.open("<button>C</button>")
    assert [node.ref for node in controls(eye.look(after=51).page)] == [52]


def test_what_is_not_there_any_more_says_so(eye: Eyes) -> None:
    eye.open("<button id=a>A</button>")
    ref = eye.look().last
    eye.run("a.remove()")
    with pytest.raises(BrowserError, match="look again with web_scan"):
        eye.loop.run(eyes.find(eye.tab, ref))
    with pytest.raises(BrowserError, match="finds nothing"):
        eye.loop.run(eyes.find(eye.tab, "#nowhere"))
    with pytest.raises(BrowserError, match="cannot be found"):
        eye.loop.run(eyes.find(eye.tab, "a[[b"))


def test_a_selector_finds_elements_in_frames_and_shadow_roots(eye: Eyes) -> None:
    frame_page(eye)

    async def value() -> str:
        return await (await eyes.find(eye.tab, "input")).input_value()

    assert eye.loop.run(value()) == "7"


# -- forms --------------------

INPUTS = {
    "text": ("x", "value=x"), "search": ("x", "value=x"), "tel": ("1", "value=1"), "url": ("http://a", "value=http://a"),
    "email": ("a@b.c", "value=a@b.c"), "number": ("4", "value=4"), "date": ("2026-01-02", "value=2026-01-02"),
    "time": ("10:20", "value=10:20"), "month": ("2026-01", "value=2026-01"), "week": ("2026-W02", "value=2026-W02"),
    "datetime-local": ("2026-01-02T10:20", "value=2026-01-02T10:20"), "color": ("#ff0000", "value=#ff0000"),
    "range": ("30", "value=30"), "password": ("secret", "value=•••"),
}  # fmt: skip


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_tell_what_they_hold_now(eye: Eyes, kind: str) -> None:
    given, told = INPUTS[kind]
    eye.open(f"<label for=i>Name</label> <input id=i type={kind}>")
    eye.run(f"document.getElementById('i').value = '{given}'")
    page = eye.look().page
    assert drawn(page.root) == f"(input[type={kind} label=Name {told}])"
    assert "secret" not in repr(page)


def test_hidden_inputs_are_gone_and_buttons_say_what_is_on_them(eye: Eyes) -> None:
    page = eye.see(
        "<form><input type=hidden value=h><input type=submit> <input type=reset> <input type=button value=Do> "
        "<input type=image alt=Go width=20 height=20> <button>Send <b>it</b></button></form>"
    )
    assert (
        drawn(page.root) == "(form(button(Submit)| |button(Reset)| |button(Do)| |button[label=Go]| |button(Send it)))"
    )


def test_states_of_controls(eye: Eyes) -> None:
    eye.open(
        "<input type=checkbox id=a><input type=checkbox id=b checked><input type=checkbox id=c>"
        "<input type=radio id=r checked>"
        "<fieldset disabled><legend>Group</legend><input id=d readonly required></fieldset>"
        "<button aria-expanded=false aria-pressed=true>M</button><a href=x aria-current=page>Here</a>"
        "<div role=tab aria-selected=true>Tab</div><div role=switch aria-checked=false>Sw</div>"
        "<input id=f aria-invalid=true>"
        "<input type=file multiple><details><summary>Sum</summary></details><details open><summary>Open"
        "</summary>x</details>"
    )
    eye.run("c.indeterminate = true; a.checked = true; f.focus()")
    states = [node.state for node in controls(eye.look().page)]
    assert states == [
        ("checked",), ("checked",), ("mixed",), ("checked",), ("disabled", "readonly", "required"),
        ("collapsed", "pressed"), ("current",), ("selected",), ("unchecked",), ("invalid", "focused"), ("multiple",),
        ("collapsed",), ("expanded",),
    ]  # fmt: skip


def test_names_come_from_labels_and_labels_are_not_told_twice(eye: Eyes) -> None:
    page = eye.see(
        "<p><label for=a>First name:</label> <input id=a></p>"
        "<p><label>Last name <input></label></p>"
        "<p><label><input type=checkbox> I accept the <a href=/t>terms</a></label></p>"
        "<p><span id=s>Street</span> <input aria-labelledby=s></p>"
        "<p><input aria-label=Zip placeholder=12345></p><p><input title=City></p>"
        "<p><label for=gone>No control</label></p>"
    )
    assert drawn(page.root) == (
        "((input[type=text label=First name:])|(input[type=text label=Last name])"
        "|(input[type=checkbox label=I accept the terms state=unchecked]|link(terms))"
        "|(Street |input[type=text label=Street])|(input[type=text label=Zip hint=12345])|(input[type=text label=City])"
        "|(No control))"
    )


def test_names_of_links_and_buttons_without_text(eye: Eyes) -> None:
    page = eye.see(
        "<a href=/a><img alt=Logo width=20 height=20></a><a href=/b aria-label=Bee>"
        "<i style='display:inline-block;width:9px;height:9px'></i></a>"
        "<a href=/c>Read <span>more</span></a><a href=/d aria-label='Read more about D'>Read more</a>"
        "<a href=/e aria-label='Read'>Read more</a>"
        "<button><svg width=9 height=9><title>Close</title></svg></button>"
        "<button><span style='position:absolute;width:1px;height:1px;overflow:hidden;clip:rect(0,0,0,0)'>Menu"
        "</span>≡</button>"
        "<button><span style='position:absolute;width:1px;height:1px;overflow:hidden;clip:rect(0,0,0,0)'>Menu"
        "</span><i>&nbsp;</i></button>"
        "<a href=/files/report-2026.pdf?x=1><img src=x width=20 height=20></a>"
        "<style>.p::before{content:'Play'}</style><button class=p></button>"
        "<button class='btn-next'></button>"
    )
    assert [drawn(node) for node in controls(page)] == [
        "link(image[label=Logo])", "link[label=Bee]", "link(Read more)", "link[label=Read more about D](Read more)",
        "link(Read more)", "button(image[label=Close])", "button(≡)", "button[label=Menu]",
        "link[label=report-2026.pdf]",
        "button(Play)", "button[label=(btn-next)]",
    ]  # fmt: skip


def test_native_boxes_that_are_hidden_below_styled_labels_can_be_acted_on(eye: Eyes) -> None:
    hidden = "position:absolute;opacity:0"
    page = eye.see(
        f"<p><input type=checkbox id=a style='{hidden}'><label for=a>Transparent</label></p>"
        "<p><input type=checkbox id=b style='display:none' checked><label for=b>Gone</label></p>"
        "<p><label><input type=radio style='position:absolute;clip:rect(0,0,0,0)'>Clipped</label></p>"
        "<p><label style='padding:9px'>Choose a file<input type=file style='display:none'></label></p>"
        "<div style='position:relative;width:100px;height:30px'>Upload"
        "<input type=file style='position:absolute;inset:0;opacity:0'></div>"
        "<p><input type=checkbox style='display:none'>no label</p>"
    )
    assert drawn(page.root) == (
        "((input[type=checkbox label=Transparent state=unchecked])|(input[type=checkbox label=Gone state=checked])"
        "|(input[type=radio label=Clipped state=unchecked])|(input[type=file label=Choose a file])"
        "|(Upload|input[type=file label=Upload])|(no label))"
    )

    async def toggle() -> object:
        for node in controls(page)[:2]:
            await (await eyes.find(eye.tab, node.ref)).click()
        return await eye.tab.evaluate("[a.checked, b.checked]")

    assert eye.loop.run(toggle()) == [True, False]


def test_selects(eye: Eyes) -> None:
    many = "".join(f"<option{' selected' if i == 30 else ''}>o{i}</option>" for i in range(40))
    page = eye.see(
        "<select><option>One<option selected>Two</select><select multiple><option selected>A<option selected>B"
        "<option>C</select>"
        f"<select>{many}</select>"
    )
    one, several, long = controls(page)
    assert (one.options, one.value) == (("One", "Two"), "Two")
    assert (several.value, several.state) == ("A, B", ("multiple",))
    assert long.options == (*(f"o{i}" for i in range(15)), "o30", "(24 more)")
    assert long.value == "o30"


def test_text_areas_and_editable_elements(eye: Eyes) -> None:
    eye.open(
        "<textarea id=t placeholder=Say>old</textarea><div contenteditable aria-label=Note><p>One</p><p>Two <b>b"
        "</b></p></div>"
        "<div contenteditable=false>No</div><div contenteditable data-placeholder='Write'></div>"
        "<style>div{min-height:20px}</style>"
    )
    eye.run("t.value = 'new\\nline'")
    assert drawn(eye.look().page.root) == (
        "((textarea[value=new\nline hint=Say])|editable[label=Note]((One)|(Two b))|(No)|(editable[hint=Write]))"
    )


def test_files_that_were_chosen_are_named(eye: Eyes) -> None:
    eye.open("<input type=file id=f>")
    eye.loop.run(eye.tab.set_input_files("#f", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"}))
    assert drawn(eye.look().page.root) == "(input[type=file value=a.txt])"


def test_roles_and_clickable_elements(eye: Eyes) -> None:
    roles = ["checkbox", "radio", "switch", "tab", "menuitem", "option", "combobox", "slider", "treeitem"]
    page = eye.see(
        "".join(f"<div role={role} tabindex=0>{role}</div>" for role in roles)
        + "<div onclick='1'>On</div><div style='cursor:pointer'>Looks</div><div style='cursor:pointer'>"
        "<a href=x>Only the link</a></div>"
        "<div style='cursor:pointer'><span style='cursor:pointer'>Once</span></div><div tabindex=0>Plain</div>"
        "<a class=js>Script</a> <a name=here>Target</a>"
    )
    found = [(node.kind, node.type, text_of(node)) for node in controls(page)]
    assert found == [("control", role, role) for role in roles] + [
        ("control", "clickable", "On"), ("control", "clickable", "Looks"), ("link", "", "Only the link"),
        ("control", "clickable", "Once"),
        ("control", "clickable", "Script"),
    ]  # fmt: skip


def test_controls_in_controls_follow_them(eye: Eyes) -> None:
    page = eye.see(
        "<a href=/x style='display:block'><h3>Title</h3><p>Summary</p><button>Save</button></a>"
        "<ul role=tree><li role=treeitem>Root<ul><li role=treeitem>Child</li></ul></li></ul><h2><a href=y>Two</a></h2>"
        "<a href=z><h3>Three</h3></a><div style='cursor:pointer'><p>A <b>card</b></p><p>of text</p></div>"
        f"<div style='cursor:pointer'>{'<p>An article, and no control.</p>' * 30}</div>"
    )
    start = (
        "((link(Title|break|Summary)| |button(Save))|list(item(control[type=treeitem](Root)| |control[type=treeitem]"
        "(Child)))|h2(link(Two))|h3(link(Three))|(control[type=clickable](A card|break|of text))|(An article"
    )
    assert drawn(page.root)[: len(start)] == start
    assert len(controls(page)) == 7


def test_rows_that_can_be_clicked_keep_their_cells(eye: Eyes) -> None:
    page = eye.see(
        "<table><tr><th>A<th>B</tr><tr style='cursor:pointer'><td>1<td>2</tr>"
        "<tr onclick='1'><td>3<td><a href=x>4</a></tr></table>"
    )
    head = "row(cell[state=head](A)|cell[state=head](B))"
    assert (
        drawn(page.root) == f"(table({head}|row(cell(control[type=clickable](1))|cell(2))|row(cell(3)|cell(link(4)))))"
    )


def test_content_that_fades_in_when_it_is_scrolled_to(eye: Eyes) -> None:
    page = eye.see(
        "<div style='height:2000px'>Top</div><div style='opacity:0;transition:opacity 1s'>Later</div>"
        "<div style='opacity:0'>Never</div>"
    )
    assert text_of(page.root) == "Top\nLater"


def test_progress_meters_and_media(eye: Eyes) -> None:
    page = eye.see(
        "<p><progress value=.25></progress> <meter value=3 max=9></meter></p>"
        "<video controls aria-label=Film width=200></video>"
        "<canvas width=300 height=200 aria-label=Chart>no</canvas>"
    )
    assert [drawn(node) for node in controls(page)] == [
        "control[type=progress value=25%]",
        "control[type=meter value=3]",
        "control[type=video label=Film]",
        "control[type=canvas label=Chart]",
    ]


# -- structure --------------------


def test_wrappers_dissolve_and_blocks_keep_apart(eye: Eyes) -> None:
    page = eye.see(
        "<div><div><section><div>One</div></section></div><div></div><div>  <span> two <b>bold</b>,</span>"
        "<i>three</i></div>"
        "four<div><p>five</p>six</div><br><br>seven<br>eight</div>"
    )
    assert drawn(page.root) == "((One)|(two bold,three)|(four)|(five)|(six)|(seven|break|eight))"


NAMES = "div span p b i ul li section h2 article pre blockquote figure a"


def random_page(chance: random.Random, depth: int = 0) -> str:
    if depth > 5 or chance.random() < 0.4:
        return f"w{chance.randrange(10**6)}{chance.choice(['', ' ', chr(10)])}"
    name = chance.choice(NAMES.split())
    inner = "".join(random_page(chance, depth + 1) for _ in range(chance.randint(0, 4)))
    return f"<{name}{' href=x' if name == 'a' else ''}>{inner}</{name}>"


@pytest.mark.parametrize("seed", range(12))
def test_words_are_those_that_chromium_shows_and_no_two_run_together(eye: Eyes, seed: int) -> None:
    chance = random.Random(seed)
    page = eye.see("".join(random_page(chance) for _ in range(8)))

    def words(node: Node) -> str:
        gap = "" if node.kind in ("link", "mark") else " "
        return gap + "".join(child if isinstance(child, str) else words(child) for child in node.children) + gap

    assert re.findall(r"\w+", words(page.root)) == re.findall(r"\w+", str(eye.run("document.body.innerText")))


def test_regions_and_headings(eye: Eyes) -> None:
    page = eye.see(
        "<header><h1>Site</h1></header><nav aria-label=Main><ul><li><a href=a>A</a></ul></nav>"
        "<main><article><header><h2>Post</h2></header><blockquote>Said</blockquote>"
        "<div role=heading aria-level=3>Sub</div></article></main>"
        "<aside>By the way</aside><div role=search><input type=search></div>"
        "<form><fieldset><legend>Colour</legend><label><input type=radio>Red</label></fieldset></form><form>"
        "<p>no controls</p></form>"
        "<footer>End</footer>"
    )
    assert drawn(page.root) == (
        "(header(h1(Site))|nav[label=Main](list(item(link(A))))|main(article(h2(Post)|quote(Said)|h3(Sub)))"
        "|aside(By the way)"
        "|search(input[type=search])|form(group[label=Colour](input[type=radio "
        "label=Red state=unchecked]))|(no controls)|footer(End))"
    )


def test_marks_and_images(eye: Eyes) -> None:
    page = eye.see(
        "<p>Was <del>10</del> 8 m<sup>2</sup>, run <code>ls -l</code> <img alt='A cat' width=30 height=30>"
        "<img width=30 height=30>"
        "<img alt=pixel "
        "width=1 height=1 src='data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=='></p>"
    )
    assert drawn(page.root) == (
        "(Was |mark[type=deleted](10)| 8 m|mark[type=sup](2)|, run |mark[type=code](ls -l)| |image[label=A cat])"
    )


def test_white_space_is_as_it_is_seen(eye: Eyes) -> None:
    page = eye.see(
        "<p>a\n   b&nbsp;&nbsp;c <b> d</b><i> e</i></p><pre>  x\n    y\n</pre>"
        "<p style='white-space:pre-line'>l1\nl2</p>"
        "<p>co&shy;operate <span>one</span><span>word</span> x<wbr>y</p>"
        "<div style='display:flex'><span>flex</span><span style='margin-left:9px'>items</span></div>"
        "<p><span style='display:inline-block'>l</span><span style='display:inline-block'>etters</span>"
        "<span style='display:inline-block;padding-left:8px'>apart</span></p>"
        "<p style='text-transform:uppercase'>kept</p><p>👨‍👩‍👧 a‍b</p>"
    )
    assert drawn(page.root) == (
        "((a b c d e)|pre(  x\n    y)|(l1|break|l2)|(cooperate oneword xy)|(flex "
        "items)|(letters apart)|(kept)|(👨‍👩‍👧 a‍b))"
    )


def test_code_outside_of_pre_keeps_its_indentation(eye: Eyes) -> None:
    page = eye.see(
        "<div style='white-space:pre'>if x:\n    y()</div>"
        "<div style='white-space:pre'>for <b>i</b>:</div><div style='white-space:pre'>    <b>f</b>(i)</div>"
    )
    assert drawn(page.root) == "(pre(if x:\n    y())|(for i:)|(    f(i)))"


def test_languages_without_spaces_and_from_right_to_left(eye: Eyes) -> None:
    page = eye.see(
        "<p>日本<b>語の</b><i>文章</i>です。</p><p dir=rtl>שלום <a href=x>עולם</a></p>"
        "<p>العربية</p><p>𠮷野家</p><p><ruby>漢"
        "<rt>かん</rt></ruby></p>"
    )
    assert drawn(page.root).startswith("((日本語の文章です。)|(שלום |link(עולם))|(العربية)|(𠮷野家)|(漢")


def test_a_page_that_reads_from_right_to_left_is_all_there(eye: Eyes) -> None:
    page = eye.see(
        "<p>ראשון</p><p style='position:absolute;left:-300px;top:90px'>שמאל</p>"
        "<p style='position:absolute;right:-900px;top:90px'>HIDDEN</p>",
        head="<style>html{direction:rtl}</style>",
    )
    said = text_of(page.root)
    assert "שמאל" in said
    assert "HIDDEN" not in said


def test_data_tables(eye: Eyes) -> None:
    page = eye.see(
        "<table><caption>Prices</caption><thead><tr><th>Name<th colspan=2>Cost</thead><tbody><tr><td>Tea<td>1<td></tr>"
        "<tr><td></td><td></td><td></td></tr></table>"
        "<table><tr><td>a<td>b<tr><td>c<td>d</table>"
        "<div role=table><div role=row><span role=columnheader>K</span><span role=columnheader>V</span></div>"
        "<div role=row><span role=cell>k</span><span role=cell>v</span></div></div>"
    )
    assert drawn(page.root) == (
        "(table[label=Prices](row(cell[state=head](Name)|cell[state=head](Cost))|row(cell(Tea)|cell(1)|cell))"
        "|table(row(cell(a)|cell(b))|row(cell(c)|cell(d)))"
        "|table(row(cell[state=head](K)|cell[state=head](V))|row(cell(k)|cell(v))))"
    )
    assert [node.count for node in page.root.walk() if node.kind == "cell"][:2] == [0, 2]


@pytest.mark.parametrize(
    "table",
    [
        "<table role=presentation><tr><td>Left<td>Right<tr><td>Down<td>x</table>",
        "<table><tr><td>Left<td>Right</table>",
        "<table><tr><td>Left<tr><td>Right</table>",
        "<table><tr><td><h2>Left</h2><td><ul><li>Right</ul><tr><td><form><input></form><td>x</table>",
    ],
)
def test_tables_that_only_lay_out_are_none(eye: Eyes, table: str) -> None:
    page = eye.see(table)
    assert not {"table", "row", "cell"} & {node.kind for node in page.root.walk()}
    assert "Left" in text_of(page.root)
    assert "Right" in text_of(page.root)


def test_like_children_are_told_with_a_selector_that_finds_them(eye: Eyes) -> None:
    page = eye.see(
        "<ul id=list>" + "".join(f"<li>Item {i}</li>" for i in range(12)) + "</ul>"
        "<div class='grid x1'>"
        + "".join(f"<div class=card><b>C{i}</b></div>" for i in range(7))
        + "<div class=ad>Other</div></div>"
        "<div><div>"
        + "".join(f"<div class='row r{(i % 2 and 'odd') or 'even'}'><a href=/{i}>R{i}</a></div>" for i in range(8))
        + "</div></div>"
        "<ol>" + "".join(f"<li>N{i}" for i in range(3)) + "</ol>" + "".join(f"<p>Prose {i}</p>" for i in range(9))
    )
    parents = {node.selector: node for node in page.root.walk() if node.selector}
    assert {"#list > li", ".grid > .card"} <= set(parents)
    for selector, node in parents.items():
        likes = [child for child in node.children if isinstance(child, Node) and child.like]
        assert eye.run(f"document.querySelectorAll({selector!r}).length") == len(likes), selector
        assert len({child.like for child in likes}) == 1
        assert len(likes) >= 6
    assert not [
        node for node in page.root.walk() if node.like and node.children and str(node.children[0]).startswith("Prose")
    ]


def test_the_main_content_is_marked_once(eye: Eyes) -> None:
    menu = "<ul>" + "".join(f"<li><a href=/{i}>Link number {i} of the menu</a>" for i in range(30)) + "</ul>"
    prose = "".join(f"<p>{'Words of the article. ' * 10}</p>" for i in range(5))
    for html in (
        f"{menu}<main>{prose}</main>",
        f"{menu}<div role=main>{prose}</div>",
        f"{menu}<article>{prose}</article><p>x</p>",
        f"<div>{menu}</div><div><div>{prose}</div><div>aside</div></div>",
    ):
        page = eye.see(html)
        marked = [node for node in page.root.walk() if node.main]
        assert len(marked) == 1, html[-60:]
        said = text_of(marked[0])
        assert "article" in said
        assert "menu" not in said
    assert not [node for node in eye.see("<p>Short</p>").root.walk() if node.main]


# -- documents that are not HTML --------------------


def test_plain_text_and_json(eye: Eyes) -> None:
    assert text_of(eye.see(Served("line 1\n  line <2>\n", type="text/plain")).root) == "line 1\n  line <2>"
    assert '{"a": [1, 2]}' in text_of(eye.see(Served('{"a": [1, 2]}', type="application/json")).root)


def test_xml_svg_and_images(eye: Eyes) -> None:
    assert "Hello" in text_of(eye.see(Served("<?xml version='1.0'?><a><b>Hello</b></a>", type="text/xml")).root)
    svg = "<svg xmlns='http://www.w3.org/2000/svg' width='200' height='50'><text x='5' y='20'>Drawn</text></svg>"
    assert "Drawn" in text_of(eye.see(Served(svg, type="image/svg+xml")).root)

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = zlib.compress(b"\0\xff\xff\xff" * 1)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
        + part(b"IDAT", row)
        + part(b"IEND", b"")
    )
    eye.open(Served(png, type="image/png"), "/dot.png")
    assert "dot.png" in text_of(eye.look().page.root)


# -- pages that resist --------------------


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


def test_a_long_page_is_read_in_time_and_cut_with_a_mark(eye: Eyes) -> None:
    rows = "".join(
        f"<li class=row><div><span class=n>{i}</span><a href='/item/{i}?reference={i * 7919}'>Item number {i}"
        f"</a> <b>costs {i} euros</b></div></li>"
        for i in range(8_000)
    )
    paragraphs = "".join(f"<p>Paragraph {i}: {'some words of prose that go on ' * 12}</p>" for i in range(8_000))
    html = f"<h1>Long</h1><ul id=l>{rows}</ul><div>{paragraphs}</div><p>End</p>"
    assert len(html) > 4_000_000
    eye.open(html)
    began = time.monotonic()
    page = eye.look().page
    assert time.monotonic() - began < 10  # 2 s where nothing else runs
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
