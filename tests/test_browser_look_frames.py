"""How the eyes see shadow roots and frames, and find again what they saw."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gad.browser import eyes
from gad.errors import BrowserError
from tests.looking import Eyes, controls, drawn, open_eyes
from tests.sites import Served


@pytest.fixture(scope="module")
def eye() -> Iterator[Eyes]:
    with open_eyes() as eye:
        yield eye


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
        page = eye.look().page
        assert drawn(page.root).startswith("((Out)|frame")
        assert drawn(page.root).endswith("|(End))")
    finally:
        never.set()


def test_a_frame_that_could_not_be_loaded_is_told_by_its_own_address(eye: Eyes) -> None:
    page = eye.see("<p>Out</p><iframe src='http://127.0.0.1:9/gone'></iframe>")
    frame = next(node for node in page.root.walk() if node.kind == "frame")
    assert (frame.url, frame.children) == ("http://127.0.0.1:9/gone", ())
    assert page.remarks == ("1 frames could not be loaded",)


def test_a_frame_that_leaves_all_the_time(eye: Eyes) -> None:
    eye.site.pages["/away"] = "<p>Away</p><script>location.search = Math.random()</script>"
    eye.open("<p>Out</p><iframe src=/away></iframe><p>End</p>", wait="domcontentloaded")
    said = drawn(eye.look().page.root)
    assert said.startswith("((Out)|frame")
    assert said.endswith("|(End))")


def test_of_very_many_frames_some_are_looked_at_and_the_others_counted(eye: Eyes) -> None:
    frames = (
        "<iframe srcdoc='<p>in</p>' width=30 height=30></iframe>" * 20 + "<iframe width=30 height=30></iframe>" * 20
    )
    page = eye.see(frames)
    assert [node.kind for node in page.root.walk()].count("frame") == 40
    assert page.remarks == ("10 frames were not looked at: there are too many, or too deep",)


def test_a_document_of_frames_only(eye: Eyes) -> None:
    eye.site.pages["/a"] = "<p>Left</p>"
    eye.site.pages["/b"] = "<p>Right</p>"
    page = eye.see(Served("<frameset cols='50%,50%'><frame src=/a><frame src=/b></frameset>"))
    assert drawn(page.root) == "(frame(Left)|frame(Right))"


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
