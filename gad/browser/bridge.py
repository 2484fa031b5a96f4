"""Brings `gad` into a page for one script, and serves what the script asks of it.

The page's end (bridge.js) is an object that only the browser's debugging protocol can reach: it is bound to a random
name in the page's global *lexical* scope, which code can use that knows the name, and none can list. Calls are fetched
from there and answered there, so there is no channel that a page could find and use by itself.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gad.browser.actions import ACTION_SECONDS, Actions, Ref
from gad.browser.values import DEEPEST, LARGEST, Reading, TooLarge
from gad.errors import BrowserError

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Locator

SOURCE = "web_execute_js"
"""What the model's script is called in stack traces."""

_DEEP = {"serialization": "deep", "maxDepth": DEEPEST, "additionalParameters": {"maxNodeDepth": 0}}


@cache
def _source() -> str:
    return files("gad.browser").joinpath("bridge.js").read_text("utf-8")


class Bridge:
    """The helper in one document, for one script. Its methods raise Playwright's Error when the document has gone.

    `serving` says that a call of the script is being done.
    """

    def __init__(self, session: CDPSession, name: str, put: str, handle: str) -> None:
        self.serving = False
        self._session = session
        self._name = name
        self._put = put
        self._handle = handle
        self._closed = False
        self._call = 0

    @classmethod
    async def build(cls, session: CDPSession) -> Bridge:
        """Bring it into the document that is there now."""
        # Handing over an element lets the page see the second name, which is good for nothing else.
        name, put = (f"gad_{secrets.token_hex(8)}" for _ in range(2))
        expression = f"let {name} = {_source()}; let {put} = {name}.put; {name}"
        made = await session.send("Runtime.evaluate", {"expression": expression, "replMode": True})
        return cls(session, name, put, made["result"]["objectId"])

    def wrapped(self, script: str, *, returns: bool) -> str:
        """Return a script with `gad` around it, for evaluation in REPL mode; its lines keep their numbers.

        With `returns` it is the body of a function, and its value comes in a list.
        """
        begin, end = ("[await(async()=>{", "})()]") if returns else ("{", "}")
        return f"{{const gad={self._name}.api;{begin}{script}\n{end}}}\n//# sourceURL={SOURCE}"

    def offset(self, *, returns: bool) -> int:
        """Return how many characters stand before a script in its first line."""
        return len(self.wrapped("", returns=returns).partition("\n")[0])

    async def serve(self, actions: Actions) -> str:
        """Do what the script asks for, one call at a time, until it is closed and nothing is left.

        Return the error that could not be told to the script as it had ended, if any.
        """
        number, error, untold = 0, "", ""
        while True:
            try:
                code = "function(id, error){if(id)this.answer(id,error);return this.ready()}"
                await self._send(code, number, error, awaitPromise=True)
            except _playwright_error():  # the page has left: as it was to, or to say that it could not be opened
                return untold or error
            asked = (await self._read("function(){return this.take()}")).value
            number, error = 0, ""
            if asked is not None:
                number = self._call = asked["id"]
                error = await self._do(actions, asked["name"], asked["args"])
                if self._closed:
                    untold = untold or error
            elif self._closed:
                return untold

    async def _do(self, actions: Actions, name: str, arguments: list[Ref]) -> str:
        """Do one thing; return what went wrong."""
        self.serving = True
        try:
            await actions.do(name, arguments)
        except BrowserError as exc:
            return f"gad.{name}: {exc}"
        finally:
            self.serving = False
        return ""

    async def close(self) -> None:
        """Take no more calls. `serve` ends when those made before are done."""
        self._closed = True
        await self._send("function(){this.close()}")

    async def put(self, locator: Locator) -> None:
        """Hand an element over to the script. Raises BrowserError."""
        code = f"(element, id) => {self._put}(id, element)"
        try:
            done = await locator.evaluate(code, self._call, timeout=ACTION_SECONDS * 1000)
        except _playwright_error() as exc:
            if f"{self._put} is not defined" in str(exc):  # it is a name of the tab's own document
                done = False
            elif "Timeout" in str(exc):
                raise BrowserError("it is no more on the page: look again with web_scan") from None
            else:
                raise BrowserError("the page has replaced what this needs; use gad.click and the like") from None
        if not done:
            raise BrowserError("scripts cannot have it: it is in another frame; use gad.click and the like")

    async def value(self, handle: str) -> Reading:
        """Return an object of the page, read as JSON. Raises TooLarge."""
        # The handle goes in as an argument: the page's end measures it first.
        code = "function(value, most){return this.measured(value, most)}"
        found = await self._send(code, {"objectId": handle}, LARGEST, serializationOptions=_DEEP)
        if "exceptionDetails" in found:
            raise TooLarge
        reading = await asyncio.to_thread(Reading, _deep(found["result"]))  # it may take seconds
        if reading.opaque:
            code = "function(value, paths){return this.plain(value, paths)}"
            plain = await self._read(code, {"objectId": handle}, reading.opaque)
            if isinstance(plain.value, dict):
                reading.fill(plain.value)
        return reading

    async def _read(self, code: str, *arguments: Any) -> Reading:
        return Reading(_deep((await self._send(code, *arguments, serializationOptions=_DEEP))["result"]))

    async def _send(self, code: str, *arguments: Any, **more: Any) -> dict[str, Any]:
        """Call a function with the page's end as `this`. An argument that is a dict is a handle."""
        given = [each if isinstance(each, dict) else {"value": each} for each in arguments]
        params = {"functionDeclaration": code, "objectId": self._handle, "arguments": given, **more}
        found: dict[str, Any] = await self._session.send("Runtime.callFunctionOn", params)
        return found


def _deep(result: dict[str, Any]) -> dict[str, Any]:
    """Return the serialised value of a RemoteObject; one that is no object has none but itself."""
    deep: dict[str, Any] = result.get("deepSerializedValue") or primitive(result)
    return deep


def primitive(result: dict[str, Any]) -> dict[str, Any]:
    """Return a RemoteObject that is no object as the serialisation would have it."""
    if "unserializableValue" in result:
        text = result["unserializableValue"]
        if result["type"] == "bigint":
            return {"type": "bigint", "value": text.rstrip("n")}
        return {"type": "number", "value": text}
    if result.get("subtype") == "null":
        return {"type": "null"}
    return {"type": result["type"], "value": result.get("value")}


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error

    return Error
