"""What the eyes see of a page and what not, in real Chromium on pages that stand here."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.looking import Eyes, controls, drawn, open_eyes, text_of


@pytest.fixture(scope="module")
def eye() -> Iterator[Eyes]:
    with open_eyes() as eye:
        yield eye


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
    "sheet-below-the-viewport": "<div style='position:fixed;bottom:-200px;height:100px'>HIDDEN</div>",
    "fixed-higher-than-viewport": "<div style='position:fixed;top:300px'><div style='height:900px'></div>SEEN</div>",
    "clipped-from-one-side": "<p style='clip-path:inset(0 0 100% 0)'>HIDDEN</p>"
    "<p style='clip-path:inset(10% 10% round 5px)'>SEEN</p>",
    "in-clipped": "<div style='clip-path:inset(50%)'><p style='position:absolute'>HIDDEN</p></div>",
    "zoomed-scroller": "<div style='zoom:2;height:50px;overflow:auto'><div style='height:400px'></div>SEEN</div>",
    "scaled-scroller": "<div style='transform:scale(2);transform-origin:0 0;height:50px;width:200px;overflow:auto'>"
    "<div style='height:400px'></div><p>SEEN</p></div>",
    "zoomed-body": "<style>body{zoom:2}</style><div style='height:2000px'></div><p>SEEN</p>",
    "scroller-from-right": "<div dir=rtl style='width:200px;overflow:auto;position:relative;height:60px'>"
    "<div style='width:700px;text-align:left'>SEEN</div>"
    "<p style='position:absolute;right:-300px;top:0'>HIDDEN</p></div>",
    "scroller-of-columns": "<div style='columns:200px;height:40px;width:300px;overflow:auto'>"
    "<p>SEEN1</p><p>SEEN2</p><p>SEEN3</p><p>SEEN4</p></div>",
    "vertical-scroller": "<div style='writing-mode:vertical-rl;width:200px;height:100px;overflow:auto'>"
    "<p>SEEN1</p><div style='width:600px'></div><p>SEEN2</p></div>",
    "reversed-row": "<div style='display:flex;flex-direction:row-reverse;width:200px;overflow:auto'>"
    "<p style='flex:0 0 200px'>SEEN1</p><p style='flex:0 0 200px'>SEEN2</p></div>",
    "reversed-column": "<div style='display:flex;flex-direction:column-reverse;height:50px;overflow:auto'>"
    "<p style='flex:0 0 100px'>SEEN1</p><p style='flex:0 0 100px'>SEEN2</p></div>",
    "popover": "<div style='height:0;overflow:hidden;transform:scale(1)'><div popover id=p>SEEN</div>"
    "<div popover>HIDDEN</div></div><script>p.showPopover()</script>",
    "dialog-closed": "<dialog>HIDDEN</dialog><p>SEEN</p>",
    "until-found": "<div hidden=until-found>HIDDEN</div><p>SEEN</p>",
    "details-summary-last": "<details open><p>SEEN</p><summary>SEEN1</summary></details>"
    "<details><p>HIDDEN</p><summary>SEEN2</summary></details>",
    "back-of-a-card": "<div style='position:relative;height:80px;transform-style:preserve-3d'>"
    "<div style='position:absolute;inset:0;backface-visibility:hidden;background:white'>SEEN</div><div "
    "style='position:absolute;inset:0;backface-visibility:hidden;transform:rotateY(180deg);background:white'>HIDDEN</div>"
    "</div>",
    "translucent-cover": "<div style='position:relative;height:60px'><p>SEEN</p>"
    "<div style='position:absolute;inset:0;background:rgba(255,255,255,.3)'></div></div>",
    "ellipsis": "<p style='overflow:hidden;white-space:nowrap;text-overflow:ellipsis;width:90px'>SEEN and longer</p>",
    "unknown-object": "<object data='/nothing' type='application/x-none'>SEEN</object>",
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


def test_a_fixed_box_above_the_viewport_is_not_reached_by_scrolling(eye: Eyes) -> None:
    eye.open("<div style='position:fixed;top:-100px;height:50px'>HIDDEN</div><div style='height:4000px'>Text</div>")
    eye.run("scrollTo(0, 1000)")
    assert text_of(eye.look().page.root) == "Text"


@pytest.mark.parametrize("mode", ["vertical-rl", "vertical-lr", "sideways-rl"])
def test_a_page_that_reads_from_top_to_bottom_is_all_there(eye: Eyes, mode: str) -> None:
    page = eye.see(
        "<p>First</p>" + "<p>Between</p>" * 60 + "<p>Last</p>", head=f"<style>html{{writing-mode:{mode}}}</style>"
    )
    assert text_of(page.root).split("\n") == ["First", *["Between"] * 60, "Last"]


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
        "<x-d></x-d><script>{const root = document.querySelector('x-d').attachShadow({mode: 'open'});"
        "root.innerHTML = '<dialog><h2>Hello</h2><button>Close</button></dialog>';root.firstChild.showModal()}"
        "</script>",
        "<dialog id=d><h2>Hello</h2></dialog><div popover=manual id=p style='top:400px'><button>Close</button></div>"
        "<script>d.showModal(); p.showPopover()</script>",
    ],
    ids=[
        "one-element",
        "backdrop-beside",
        "dialog-element",
        "nested",
        "dialog-in-shadow-root",
        "popover-before-dialog",
    ],
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
