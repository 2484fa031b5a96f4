"""Every exception gad raises on purpose, in one tree.

::

    GadError
    ├── ConfigError              gad.yaml or task.yaml is wrong: what, which line, how to mend it
    ├── HomeNotFound             no gad.yaml here or above
    ├── Rejected                 a client's file cannot be accepted
    ├── JournalDamaged           a journal line that is not the last one cannot be read or folded
    │   └── JournalTooNew        a newer gad has written it
    ├── SpoolLocked              another daemon owns this spool (exit code 100)
    ├── InvalidStep              a record that the session machine's table does not list
    ├── MemoryRefused            this may not be written into memory: why, and how to mend it
    ├── MemoryLocked             another process held the memory lock for too long
    ├── LocalModelError          the embedded model cannot be fetched, verified or started
    ├── BrowserError             the browser cannot be started or do what was asked; the model is told
    └── ProviderError            asking the model failed
        ├── Temporary            asking again later may work
        │   ├── RateLimited      HTTP 429
        │   ├── Overloaded       HTTP 5xx, 529, or an overload event inside a stream
        │   └── NetworkError     no connection, a cut stream, a silent stream
        └── Permanent            asking again will not help
            ├── AuthError        HTTP 401, 403
            ├── BadRequest       HTTP 400, 404, 422: no such model, malformed request
            ├── ContextOverflow  the request is longer than the model's window
            └── Refused          the vendor declined to answer

Two channels for trouble: what the model should see is data (a tool result with an error status);
what policy or the operator must see is one of these.
"""

from __future__ import annotations


class GadError(Exception):
    """Base of every exception gad raises on purpose."""


class ConfigError(GadError):
    """A configuration file is wrong. The message says what, where (file and line) and how to mend it."""


class HomeNotFound(GadError):
    """No gad.yaml in the working directory or above it."""


class Rejected(GadError):
    """A client's file cannot be accepted. The message says what is wrong and how to mend it."""


class JournalDamaged(GadError):
    """A journal cannot be read or replayed; the file is left as it is."""


class JournalTooNew(JournalDamaged):
    """A newer gad has written this journal. The message says which one, and what to do."""


class SpoolLocked(GadError):
    """Another daemon holds this spool's lock. The message names the holder."""


class InvalidStep(GadError):
    """A record arrived in a state whose table row does not list it."""


class MemoryRefused(GadError):
    """Something may not be written into memory. The message says why, and how to mend it."""


class MemoryLocked(GadError):
    """Another process held the memory lock for too long. The message names the holder."""


class LocalModelError(GadError):
    """The embedded model cannot be fetched, verified or started."""


class BrowserError(GadError):
    """The browser cannot be started, or cannot do what was asked. The message says how to mend it."""


class ProviderError(GadError):
    """Asking a model failed."""


class Temporary(ProviderError):
    """Asking again later may work.

    ``retry_after`` is the number of seconds the server asked us to wait, or None.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimited(Temporary):
    """The vendor limits our request rate (HTTP 429)."""


class Overloaded(Temporary):
    """The vendor cannot serve anybody right now (HTTP 5xx, 529, or an overload event in a stream)."""


class NetworkError(Temporary):
    """No connection, a stream that was cut, or one that stayed silent too long."""


class Permanent(ProviderError):
    """Asking again will not help."""


class AuthError(Permanent):
    """The key is missing, wrong, or not allowed to use this model."""


class BadRequest(Permanent):
    """The server does not accept the request: no such model, or malformed."""


class ContextOverflow(Permanent):
    """The request is longer than the model's context window."""


class Refused(Permanent):
    """The vendor declined to answer this request."""
