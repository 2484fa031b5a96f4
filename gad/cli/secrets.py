"""What a daemon must keep to itself: its models' keys, its credentials, and variables whose names say so."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

from gad.config import CREDENTIALS, Config, read_key
from gad.errors import ConfigError
from gad.tools.environment import is_secret

LARGEST = 65_536
"""Bytes of a credential that is read: what is larger is a file of data."""

_SETTING = re.compile(
    r"_(URL|URI|ENDPOINT|HOST|BASE|MODEL|VERSION|REGION|PROFILE|FILE|PATH|DIR|TYPE|ORG|ORGANIZATION|PROJECT|LOG)$",
    re.IGNORECASE,
)
"""Variables that are kept from commands with the rest of a vendor's, and hold no secret."""


def find_secrets(config: Config, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each secret; what cannot be read is left out, and told of where it is needed."""
    for entry in config.models.values():
        if entry.base_url:
            yield from _password(f"models.{entry.name}.base_url", entry.base_url)
        with contextlib.suppress(ConfigError):
            if key := read_key(entry, environ):
                yield entry.key_env or entry.key_credential or f"models.{entry.name}.key_file", key
    if config.browser.proxy:
        yield from _password("browser.proxy", config.browser.proxy)
    yield from _credentials(environ.get(CREDENTIALS, ""))
    plain = {text for entry in config.models.values() for text in (entry.model, entry.base_url, *entry.chain) if text}
    for name, value in environ.items():
        if not is_secret(name):
            continue
        if "://" in value:
            yield from _password(name, value)
        if not (_SETTING.search(name) or value in plain or value in environ or _is_path(value)):
            yield name, value


def _is_path(value: str) -> bool:
    return value.startswith(("/", "~")) and os.path.exists(os.path.expanduser(value))


def _password(name: str, url: str) -> Iterator[tuple[str, str]]:
    try:
        password = urlsplit(url).password
    except ValueError:
        return
    if password:
        yield name, password
        yield name, unquote(password)


def _credentials(directory: str) -> Iterator[tuple[str, str]]:
    try:
        found = sorted(os.listdir(directory)) if directory else []
    except OSError:
        return
    for name in found:
        try:
            path = os.path.join(directory, name)
            info = os.stat(path)
            if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST:
                continue
            with open(path, encoding="utf-8") as file:
                yield name, file.read()
        except (OSError, UnicodeDecodeError):
            continue
