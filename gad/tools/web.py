"""web_scan and web_execute_js: a web page as text that can be acted on, and scripts that act on it.

What the browser says is put together here: gad's own words stand outside the mark of untrusted text, all that a page
can have written stands inside. What has no room is in a file that the result names.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from gad.core.cut import copied_mark, cut
from gad.core.page import Acted, Event, Page, Sight, Tab
from gad.core.page_diff import difference
from gad.core.page_text import lines, plain, structured
from gad.core.ports import Browser, Outcome, ToolContext, ToolSchema
from gad.core.untrusted import mark
from gad.errors import BrowserError
from gad.tools.capture import call_stem, new_file
from gad.tools.confine import check_place, directory_of
from gad.tools.memory_write import memory_path
from gad.tools.textfiles import perform, replace_file, resolve

PLAIN_LIMIT = 10_000
"""Characters of a page as plain text at most."""
URL_LIMIT = 300
"""Characters of an address that are shown at most."""
TITLE_LIMIT = 120
"""Characters of a title that are shown at most."""
BRIEF_LIMIT = 1_000
"""Characters of the messages that were shown for a moment, at most."""
_FRAME = 600
"""Characters that are kept free for the mark and for gad's own words."""


class WebScan:
    """Shows a tab of the session's browser."""

    schema = ToolSchema(
        "web_scan",
        "See the browser's page as it is now: text, with controls as [ref label](kind: value).",
        {
            "type": "object",
            "properties": {
                "url": {"type": "string", "description": "go there first"},
                "switch_tab_id": {"type": "integer"},
                "tabs_only": {"type": "boolean"},
                "text_only": {"type": "boolean", "description": "plain text, no refs"},
            },
        },
    )

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Look, and show what was seen; trouble with the browser or the address is an error that says what to do."""
        tabs_only = arguments.get("tabs_only", False)
        try:
            seen = await self._browser.scan(
                context,
                url=arguments.get("url", "").strip(),
                tab=arguments.get("switch_tab_id", 0),
                look=not tabs_only,
            )
        except BrowserError as trouble:
            return Outcome("error", str(trouble))
        return await perform(lambda: _seen(seen, context, text_only=arguments.get("text_only", False)))


class WebExecuteJs:
    """Runs JavaScript in a tab of the session's browser."""

    schema = ToolSchema(
        "web_execute_js",
        "Run JavaScript in the page; returns the last value (or `return`) and what changed. Top-level await works. "
        "Real input: await gad.click(ref), gad.type(ref, text), gad.press(key), gad.goto(url); more in SOP web.",
        {
            "type": "object",
            "properties": {
                "script": {"type": "string"},
                "switch_tab_id": {"type": "integer"},
                "save_to_file": {"type": "string", "description": "path for the value"},
                "no_monitor": {"type": "boolean", "description": "only the value"},
            },
            "required": ["script"],
        },
    )

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Run the script; what it threw is an error that still tells what changed."""
        script: str = arguments["script"]
        if not script.strip():
            return Outcome("error", "script is empty")
        if refused := copied_mark("script", script):
            return Outcome("error", refused)
        path: str = arguments.get("save_to_file", "")
        try:
            target = _target(path, context) if path else ""
        except (ValueError, OSError) as wrong:
            return Outcome("error", str(wrong))
        try:
            done = await self._browser.execute(
                context,
                script,
                tab=arguments.get("switch_tab_id", 0),
                monitor=not arguments.get("no_monitor", False),
            )
        except BrowserError as trouble:
            return Outcome("error", str(trouble))
        return await perform(partial(_acted, done, context, target))


# -- what was seen -------------------------------------------------------------------------------


def _seen(seen: Sight, context: ToolContext, *, text_only: bool) -> Outcome:
    page = seen.page
    if page is None:
        told = [*map(_told_tab, seen.tabs), *_told_events(seen.events)]
        active = next((tab.url for tab in seen.tabs if tab.active), "")
        text = _marked("\n".join(told) or "no tab is open; open an address with web_scan url=...", active)
        return Outcome("ok", _joined(seen.notes, text))
    head = _head(page, seen.tabs, seen.events)
    limit = min(context.limit, PLAIN_LIMIT) if text_only else context.limit
    room = max(200, limit - _FRAME - sum(len(text) + 1 for text in (*head, *seen.notes, *page.remarks)))
    shown = plain(page, room) if text_only else structured(page, room)
    text = _marked("\n".join((*head, shown.text)), page.url)
    if not shown.cut:
        return Outcome("ok", _joined((*seen.notes, *page.remarks), text))
    saved = f"{call_stem('web_scan', context)}.md"
    _keep(saved, _marked("\n".join((*head, *lines(page))), page.url))
    more = f"{len(shown.text):,} of {shown.whole:,} characters are shown; read on with file_read in {saved}"
    return Outcome("ok", _joined((*seen.notes, *page.remarks), text, more), {}, saved)


def _head(page: Page, tabs: tuple[Tab, ...], events: tuple[Event, ...]) -> list[str]:
    """Return what stands above a page: other tabs if there are any, its address, its title, and what has happened."""
    found = [f"tabs: {' | '.join(map(_told_tab, tabs))}"] if len(tabs) > 1 else []
    found.append(f"url: {cut_end(page.url, URL_LIMIT)}")
    if page.title:
        found.append(f"title: {cut_end(_one_line(page.title), TITLE_LIMIT)}")
    return [*found, *_told_events(events)]


# -- what was done -------------------------------------------------------------------------------


def _acted(done: Acted, context: ToolContext, target: str) -> Outcome:
    notes = list(done.notes)
    told: list[str] = []
    saved = ""
    room = max(200, context.limit - _FRAME)
    if done.error:
        told.append(f"error: {cut(done.error, room // 2)}")
    elif target:
        data = _value_text(done.value) if done.returned else ""
        replace_file(target, data.encode("utf-8", "replace"), _former(target), context)
        told.append(f"the value, {len(data):,} characters, is in {target}")
    elif done.returned:
        data = _value_text(done.value)
        if len(data) > room // 2:
            saved = f"{call_stem('web_execute_js', context)}.txt"
            _keep(saved, data)
        told.append(f"value: {cut(data, room // 2, saved)}")
    else:
        told.append("no value")
    told += _moves(done)
    told += _told_events(done.events)
    if done.brief:
        told.append(cut_end(f"shown for a moment: {' | '.join(map(_one_line, done.brief))}", BRIEF_LIMIT))
    room -= sum(len(text) + 1 for text in (*told, *notes))
    if done.after is not None:
        notes += done.after.remarks
        told += _changes(done.before, done.after, moved=done.moved, room=max(200, room))
    if done.unsettled:
        told.append(f"not waited for: {done.unsettled}")
    url = done.after.url if done.after is not None else next((tab.url for tab in done.tabs if tab.active), "")
    text = _joined(notes, _marked("\n".join(told), url))
    return Outcome("error" if done.error else "ok", text, {}, saved)


def _moves(done: Acted) -> list[str]:
    """Return what tells of other addresses and tabs."""
    found = []
    after = done.after
    if after is not None and (done.before is None or done.before.url != after.url):
        found.append(f"url: {cut_end(after.url, URL_LIMIT)}")
    if after is not None and after.title and (done.before is None or done.before.title != after.title):
        found.append(f"title: {cut_end(_one_line(after.title), TITLE_LIMIT)}")
    if any(event.kind == "tab" for event in done.events):
        found.append(f"tabs: {' | '.join(map(_told_tab, done.tabs))}")
    return found


def _changes(before: Page | None, after: Page, *, moved: bool, room: int) -> list[str]:
    """Return how the page looks different: line by line, or all of it where it is another one."""
    if before is None or moved:
        shown = structured(after, room)
        more = [f"{len(shown.text):,} of {shown.whole:,} characters are shown; web_scan shows more"]
        return ["the page:", shown.text, *(more if shown.cut else ())]
    changed = difference(lines(before), lines(after), room)
    return ["changed:", changed] if changed else ["nothing visible changed"]


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _target(path: str, context: ToolContext) -> str:
    """Return the absolute path of a file for a value. Raises ValueError where a value cannot be put."""
    if memory_path(path, context) is not None:
        raise ValueError("save_to_file cannot write into memory; save the value elsewhere")
    target = os.path.realpath(resolve(path, context))
    check_place(target, context)
    if os.path.exists(target) and not os.path.isfile(target):
        raise ValueError(f"save_to_file: {target} is not a regular file")
    with directory_of(target, context, make=True):
        return target


def _former(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


# -- words ---------------------------------------------------------------------------------------


def _told_tab(tab: Tab) -> str:
    active = "*" if tab.active else ""
    title = cut_end(_one_line(tab.title), TITLE_LIMIT // 2)
    return f"{active}{tab.number} {title} {cut_end(tab.url, URL_LIMIT // 3)}".replace("  ", " ")


def _told_events(events: Iterable[Event]) -> list[str]:
    return [f"{event.kind}: {_one_line(event.text)}" for event in events]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def cut_end(text: str, limit: int) -> str:
    """Return a text's beginning, with an ellipsis where the rest is not shown."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _marked(text: str, url: str) -> str:
    return mark(text, url, lambda: secrets.token_hex(3))


def _joined(notes: Iterable[str], text: str, *after: str) -> str:
    return "\n".join((*(f"[{note}]" for note in notes), text, *(f"[{note}]" for note in after)))


def _keep(path: str, text: str) -> None:
    with os.fdopen(new_file(path), "w", encoding="utf-8", errors="replace", newline="\n") as file:
        file.write(text)
