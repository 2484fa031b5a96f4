"""Runs a model's script in a page, waits for what it sets off, and tells what came of it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gad.browser import eyes
from gad.browser.actions import Actions
from gad.browser.bridge import SOURCE, Bridge, primitive
from gad.browser.chromium import first_line
from gad.browser.settle import QUIET_AFTER_INPUT_SECONDS, QUIET_SECONDS, Settled, Travel
from gad.browser.values import LARGEST, Reading, TooLarge
from gad.core.page import Acted, Page
from gad.core.ports import ToolContext
from gad.errors import BrowserError

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

    from gad.browser.visits import OpenTab, Visit

SCRIPT_SECONDS = 60.0
"""How long a script may run, waiting included."""
LOOK_SECONDS = 15.0
PROBE_SECONDS = 0.5
"""How long a page may take to answer that is not held up by a script."""
LEFT = "the script ended when the page left"
TOO_LARGE = f"the value is too large (more than {LARGEST // 1_000_000} MB): return less"


@dataclass
class Ended:
    """How a script ended: with a value, an error, or because its page left."""

    value: Any = None
    returned: bool = False
    error: str = ""
    note: str = ""


async def run_script(
    visit: Visit,
    tab: OpenTab,
    context: ToolContext,
    script: str,
    *,
    monitor: bool,
    seconds: float = SCRIPT_SECONDS,
) -> Acted:
    """Run a script in a tab, for `seconds` at most. With `monitor`, look before and after, and wait in between.

    What goes wrong in the script is in what is returned. Raises BrowserError when the page cannot be used.
    """
    stopped = await visit.free(tab, LOOK_SECONDS)
    try:
        session = await visit.context.new_cdp_session(tab.page)
    except _playwright_error() as exc:
        raise BrowserError(first_line(exc)) from None
    try:
        acted = await _run_in(visit, tab, _Run(visit, tab, session, context, script), monitor, seconds)
    except asyncio.CancelledError:
        visit.stop_loading(tab)
        raise
    finally:
        visit.detach(session)
    return replace(acted, notes=(f"tab {tab.number}: {stopped}", *acted.notes)) if stopped else acted


async def _run_in(visit: Visit, tab: OpenTab, run: _Run, monitor: bool, seconds: float) -> Acted:
    before: Page | None = None
    after: Page | None = None
    settled = Settled(visit)
    notes: list[str] = []
    if monitor:
        before, stopped = await visit.look(tab, LOOK_SECONDS)
        notes += stopped
        await eyes.watch(tab.page)
    earlier = frozenset(tab.requests)
    ended = await run.run(seconds)
    if ended.note:
        notes.append(ended.note)
    if monitor:
        quiet = QUIET_AFTER_INPUT_SECONDS if run.input_used else QUIET_SECONDS
        await settled.wait(visit, tab, run.travel, earlier, quiet)
        if settled.tab is not None:
            try:
                after, stopped = await visit.look(settled.tab, LOOK_SECONDS)
                notes += stopped
            except BrowserError as exc:
                notes.append(str(exc))
    else:
        settled.tab = await visit.active()
    elsewhere = settled.tab is not tab
    return Acted(
        tabs=await visit.tabs(),
        value=ended.value,
        returned=ended.returned,
        error=ended.error,
        before=None if elsewhere else before,
        after=after,
        moved=run.travel.moved or elsewhere,
        brief=tuple(settled.brief),
        unsettled="; ".join(settled.unsettled),
        events=visit.take_events(),
        notes=tuple(notes),
    )


class _Run:
    """One run of a script in one document."""

    def __init__(self, visit: Visit, tab: OpenTab, session: CDPSession, context: ToolContext, script: str) -> None:
        self._visit = visit
        self._tab = tab
        self._session = session
        self.travel = Travel(session)
        self._context = context
        self._script = script
        self.input_used = False

    async def run(self, seconds: float) -> Ended:
        """Run the script to its end, or for that long."""
        try:
            async with asyncio.timeout(seconds):
                await self.travel.begin()
                return await self._evaluate_and_serve()
        except TimeoutError:
            return Ended(error=f"the script did not end within {seconds:g} s{await self._stop()}")
        except asyncio.CancelledError:
            await self._stop()
            raise
        except _playwright_error() as exc:
            return await self._gone(exc)

    async def _evaluate_and_serve(self) -> Ended:
        bridge = await Bridge.build(self._session)
        actions = Actions(self._tab.page, self._context, self._script, bridge.put)
        serving = asyncio.create_task(bridge.serve(actions))
        try:
            gone = False
            try:
                ended = await self._evaluate(bridge)
            except _playwright_error() as exc:
                gone, ended = True, await self._gone(exc)
            untold = await self._finish(bridge, serving, gone=gone)
            if untold and not ended.error:
                ended.error = untold
            return ended
        finally:
            self.input_used = actions.used
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _finish(self, bridge: Bridge, serving: asyncio.Task[str], *, gone: bool) -> str:
        """Have the calls done that the script made and did not await; return what went wrong there."""
        if not gone and self.travel.under_way and not bridge.serving:
            return ""  # nothing can be done in a page that is about to leave
        with contextlib.suppress(_playwright_error()):  # it has left
            await bridge.close()
        try:
            return await serving
        except _playwright_error():
            return ""

    async def _evaluate(self, bridge: Bridge) -> Ended:
        said = await self._evaluate_as(bridge, returns=False)
        wrong = said.get("exceptionDetails")
        returns = wrong is not None and _is_top_level_return(wrong)
        if returns:
            said = await self._evaluate_as(bridge, returns=True)
        elif wrong is None and said["result"].get("subtype") == "promise":
            said = await self._session.send("Runtime.awaitPromise", {"promiseObjectId": said["result"]["objectId"]})
        if "exceptionDetails" in said:
            details = said["exceptionDetails"]
            where = self._position(details, bridge.offset(returns=returns))
            return Ended(error=await self._explain(bridge, details) + where)
        result = said["result"]
        try:
            if "objectId" not in result:
                value = Reading(primitive(result)).value
                if isinstance(value, str) and len(value) > LARGEST:
                    raise TooLarge
                return Ended(value, result["type"] != "undefined")
            read = await bridge.value(result["objectId"])
        except TooLarge:
            return Ended(error=TOO_LARGE)
        if returns:
            return Ended(read.value[0], read.data["value"][0]["type"] != "undefined")
        return Ended(read.value, True)

    async def _evaluate_as(self, bridge: Bridge, *, returns: bool) -> dict[str, Any]:
        params = {"expression": bridge.wrapped(self._script, returns=returns), "replMode": True, "userGesture": True}
        found: dict[str, Any] = await self._session.send("Runtime.evaluate", params)
        return found

    async def _explain(self, bridge: Bridge, details: dict[str, Any]) -> str:
        """Return what was thrown."""
        thrown = details.get("exception", {})
        if thrown.get("subtype") == "error" or thrown.get("className") == "DOMException":
            text = str(thrown["description"]).partition("\n    at ")[0]
        elif "objectId" in thrown:
            try:
                text = f"thrown: {(await bridge.value(thrown['objectId'])).value}"
            except TooLarge:
                text = f"thrown: {thrown.get('description', '')}"
        else:
            text = f"thrown: {Reading(primitive(thrown)).value}" if thrown else str(details.get("text"))
        return text

    def _position(self, details: dict[str, Any], offset: int) -> str:
        """Return where in the script it was, in brackets, where that is known."""
        frames = details.get("stackTrace", {}).get("callFrames")
        if frames is None:  # a syntax error: its own position is that in the script
            if "scriptId" not in details:
                return ""
            frames = [{"url": SOURCE, **details}]
        found = next((frame for frame in frames if frame["url"] == SOURCE), None)
        if found is None:
            return ""
        lines = self._script.split("\n")
        line, column = found["lineNumber"], found["columnNumber"]
        if line == 0:
            column -= offset
        if line >= len(lines):  # where the script ends too early
            line, column = len(lines) - 1, len(lines[-1])
        return f" (line {line + 1}:{max(0, column) + 1})"

    async def _gone(self, exc: Exception) -> Ended:
        """Say why the script's world is no more there. Raises BrowserError when the browser is not, either."""
        said = str(exc)
        if not await self._visit.running.answers():
            raise BrowserError(self._visit.running.lost)
        if "Promise was collected" in said:
            return Ended(error="the script waits for a promise that nothing will ever resolve")
        if self._tab.page.is_closed():
            return Ended(note="the script ended when its tab was closed")
        if self.travel.moved or self.travel.under_way:
            return Ended(note=LEFT)
        return Ended(error=f"the script was broken off: {first_line(exc)}")

    async def _stop(self) -> str:
        """End a script that runs on; return what there is to say of it."""
        try:
            said = await self._visit.free(self._tab, PROBE_SECONDS)
        except BrowserError as exc:
            said = str(exc)
        return f"; {said or 'what it waits for did not come, and should it come, it will go on'}"


def _is_top_level_return(details: dict[str, Any]) -> bool:
    # An error of the parser has no stack; one from eval() at run time has, and then the script has run already.
    said = str(details.get("exception", {}).get("description", ""))
    return said == "SyntaxError: Illegal return statement" and "stackTrace" not in details


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error

    return Error
