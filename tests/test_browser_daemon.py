"""No process of a browser outlives the daemon that started it, and a service user can start one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gad.browser.browser import WebBrowser
from gad.browser.chromium import end_left_over
from gad.errors import BrowserError
from tests.browsers import ENVIRONMENT, alive, call, command, marked, until
from tests.sites import Loop, Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site({"/": "<p>hello"}) as site:
        yield site


DAEMON = """
import asyncio, json, os, signal, sys
from pathlib import Path
from gad.browser.browser import WebBrowser
from gad.browser.chromium import end_left_over
from tests.browsers import call

async def main(place, url, sandbox, labels):
    environment = {"PATH": os.environ["PATH"], "GAD_HOME": os.environ["GAD_HOME"]}
    browser = WebBrowser(str(place / "b"), environment=environment, profiles=("shop",), sandbox=sandbox)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sight = await browser.scan(call(place, "ann", *labels), url=url)
    print(json.dumps([tab.title for tab in sight.tabs]), flush=True)
    await stop.wait()
    await browser.close()

place, url, sandbox, *labels = sys.argv[1:]
asyncio.run(main(Path(place), url, sandbox, labels))
"""


def daemon(
    place: Path, url: str, *labels: str, sandbox: str = "auto", prefix: tuple[str, ...] = (), **environ: str
) -> subprocess.Popen[str]:
    """Start a process that uses a browser; everything that it starts carries its mark."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", DAEMON, str(place), url, sandbox, *labels],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "GAD_HOME": str(place), "PYTHONPATH": os.getcwd(), **environ},
    )


BUSY = "<title>busy</title><script>setTimeout(() => {while (1);}, 1000)</script>"


@pytest.mark.parametrize(("how", "page"), [("term", "<title>rest</title>"), ("kill", BUSY), ("kill both", BUSY)])
def test_nothing_outlives_the_daemon(site: Site, tmp_path: Path, how: str, page: str) -> None:
    site.pages["/page"] = page
    with daemon(tmp_path, site.url("/page"), "shop") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) in (["rest"], ["busy"])
        mark = f"GAD_HOME={tmp_path}"
        found = marked(mark)
        kinds = " ".join(map(command, found))
        assert "driver/node" in kinds and "--type=renderer" in kinds and "crashpad" in kinds
        if how == "term":
            process.terminate()
        else:
            nodes = [pid for pid in found if "driver/node" in command(pid)]
            process.kill()
            for pid in nodes if how == "kill both" else ():
                os.kill(pid, signal.SIGKILL)
        assert until(lambda: not alive(found) and not marked(mark)), [command(pid) for pid in alive(found)]
    # The next one begins as if nothing had been.
    with daemon(tmp_path, site.url("/"), "shop") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == [""]
        process.terminate()
        assert process.wait(20) == 0
    assert os.listdir(tmp_path / "b") == ["shop"]


@pytest.mark.parametrize(
    "environ", [{}, {"HOME": "/nonexistent"}, {"HOME": "/proc"}], ids=["no home", "no such home", "read-only home"]
)
def test_a_service_user(site: Site, environ: dict[str, str]) -> None:
    place = Path(f"/tmp/gad-browser-{os.getpid()}")
    place.mkdir(mode=0o700)
    try:
        as_nobody: tuple[str, ...] = ()
        if os.geteuid() == 0:
            os.chown(place, 65534, 65534)
            as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
            probe = subprocess.run(
                [*as_nobody, sys.executable, "-c", "import gad.browser.browser"], capture_output=True
            )
            if probe.returncode:
                pytest.skip("an unprivileged user cannot read this checkout or its Python")
        if subprocess.run([*as_nobody, "unshare", "--user", "true"], capture_output=True).returncode:
            pytest.skip("this machine has no user namespaces, so no browser has a sandbox")
        with daemon(place, site.url("/"), sandbox="on", prefix=as_nobody, **environ) as process:
            assert process.stdout is not None and process.stderr is not None
            assert json.loads(process.stdout.readline() or process.stderr.read()) == [""]
            assert not any("--no-sandbox" in command(pid) for pid in marked(f"GAD_HOME={place}"))
            process.terminate()
            assert process.wait(20) == 0
            assert process.stderr.read() == ""
        assert not marked(f"GAD_HOME={place}")
    finally:
        shutil.rmtree(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may not have a sandbox")
def test_a_sandbox_that_does_not_work(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def start() -> None:
        browser = WebBrowser(str(tmp_path / "b"), environment=ENVIRONMENT, sandbox="on")
        with pytest.raises(BrowserError, match=r"sandbox does not work for root; set browser.sandbox: auto"):
            await browser.scan(call(tmp_path, "ann"))
        browser = WebBrowser(str(tmp_path / "b"), environment=ENVIRONMENT)
        await browser.scan(call(tmp_path, "ann"), url=site.url("/"))
        await browser.close()

    with Loop() as loop:
        loop.run(start())
    assert "the browser runs without it" in caplog.text


def test_what_a_crash_has_left_is_ended(tmp_path: Path) -> None:
    def start(mark: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["bash", "-c", "sleep 60 & wait"], env={"GAD_BROWSER": mark}, start_new_session=True)

    with start(str(tmp_path)) as left, start(f"{tmp_path}2") as other:
        found = marked(f"GAD_BROWSER={tmp_path}")
        assert end_left_over(str(tmp_path)) == 1
        assert left.wait(5) == -signal.SIGKILL and until(lambda: not alive(found))
        assert other.poll() is None
        os.killpg(other.pid, signal.SIGKILL)
