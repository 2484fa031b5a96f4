"""When a schedule is due, and what to do about it now. What its file says is read in gad.core.schedule_file.

A due time is a whole second since the epoch. A wall-clock time (all but `every_Nm` and `every_Nh`) is due at the first
instant at which the zone's clock shows it or a later one. So what the clock skips in spring is due as soon as it has
been put forward, and what it shows twice in autumn is due the first time. The exception is a cron expression for every
hour of the day, which goes on through the hour that comes twice, as with Vixie's cron.

Nothing here looks at a clock: `now` and the zone come from the caller.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any

from gad.core.cron import Cron, last_of_month

GRACE = 60
"""What is at most this late, in seconds, is on time: neither missed nor too old."""

_LOOK_BACK = 60 * 86400
"""How much further back than `max_delay` missed due times are looked for, in seconds: they are told, and no more. Else
a clock that began in 1970 would cost minutes."""

_ANCHOR = date(2020, 1, 1)
"""`every_Nm` and `every_Nh` with a time count from this day in their zone: as far from an epoch as zones hold still."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one file says.

    `repeat` is `cron` where `cron` is given. `every` is N of every_Nd in days and of every_Nm and every_Nh in seconds.
    `weekday` counts from Monday, 0; `day` 31 is the month's last. `jitter` and `max_delay` are seconds.
    """

    name: str
    prompt: str
    repeat: str
    at: time | None = None
    every: int = 0
    weekday: int = 0
    day: int = 1
    once_on: date | None = None
    cron: Cron | None = None
    timezone: str | None = None
    enabled: bool = True
    overlap: str = "skip"
    catch_up: str = "last"
    jitter: int = 0
    max_delay: float = 6 * 3600
    sop: str | None = None
    task: Mapping[str, Any] | None = None

    def on(self, day: date) -> bool:
        """Return whether its wall-clock times are due on this day."""
        match self.repeat:
            case "cron":
                assert self.cron is not None
                return self.cron.on(day)
            case "once":
                return day == self.once_on
            case "weekday":
                return day.weekday() < 5
            case "weekly":
                return day.weekday() == self.weekday
            case "monthly":
                return day.day == min(self.day, last_of_month(day))
            case _:
                return day.toordinal() % (self.every or 1) == 0

    @property
    def timing(self) -> str:
        """What says when it is due. What is due by another timing than before has not been missed."""
        cron = self.cron and self.cron.text
        parts = (self.repeat, cron, self.at, self.weekday, self.day, self.once_on, self.timezone, self.enabled)
        return " ".join(map(str, parts))

    @property
    def counted(self) -> bool:
        """Whether it counts seconds instead of looking at the wall clock."""
        return self.every > 0 and self.repeat[-1] in "mh"

    @property
    def options(self) -> dict[str, Any]:
        """The options of its sessions."""
        return {**(self.task or {}), **({"sop": self.sop} if self.sop else {})}

    def delay(self, due: int) -> int:
        """Return by how many seconds a due time is put off: 0 to `jitter`, always the same for the same due time."""
        if not self.jitter:
            return 0
        digest = hashlib.sha256(f"{self.name} {due}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % (self.jitter + 1)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Due times that are let go, and why."""

    dues: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        span = " to ".join(dict.fromkeys((stamp(self.dues[0]), stamp(self.dues[-1]))))
        return f"{span}{f' ({len(self.dues)} due times)' if len(self.dues) > 1 else ''}: {self.why}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now.

    `fire` are the due times to hand in, `waiting` those to ask about again when the session is done. `last` is the due
    time up to which all has been dealt with. `next` is when there is something to do again, in seconds, or None.
    `note` says what a person should know.
    """

    fire: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    last: int | None = None
    next: int | None = None
    note: str = ""


# -- when ----------------------------------------------------------------------------------------


def occurrences(schedule: Schedule, after: float, until: float, tz: tzinfo) -> Iterator[int]:
    """Yield the due times that lie after `after` and not after `until`, in order, each once."""
    latest = after
    found = _counted(schedule, after, tz) if schedule.counted else _wall_clock(schedule, after, tz)
    for due in found:
        if due > until:
            return
        if due > latest:
            latest = due
            yield due


def _counted(schedule: Schedule, after: float, tz: tzinfo) -> Iterator[int]:
    """Count seconds from an anchor: midnight UTC of 1970, or the time that is given on the anchor's day."""
    anchor = _instants(datetime.combine(_ANCHOR, schedule.at), tz)[0] if schedule.at else 0
    due = anchor + math.floor((after - anchor) / schedule.every) * schedule.every
    while True:
        due += schedule.every
        yield due


def _wall_clock(schedule: Schedule, after: float, tz: tzinfo) -> Iterator[int]:
    """Yield due times in order, some of them twice and some not after `after`."""
    hourly = schedule.cron is not None and len(schedule.cron.hours) == 24
    again: list[int] = []
    # What the clock shows now, or with the offset of tomorrow: what it will show again after being put back.
    day = timedelta(days=1)
    today, tomorrow = (
        datetime.fromtimestamp(at, tz).replace(tzinfo=None) for at in (after, after + day.total_seconds())
    )
    start = min(today, tomorrow - day)
    for wall in _walls(schedule, start):
        first, second = _instants(wall, tz)
        if hourly and second > first:
            heapq.heappush(again, second)
        while again and again[0] < first:
            yield heapq.heappop(again)
        yield first


def _walls(schedule: Schedule, start: datetime) -> Iterator[datetime]:
    """Yield what the clock shows when it is due, from `start` on. Without an end, but for `once`."""
    if schedule.cron is not None:
        times = [time(hour, minute) for hour in schedule.cron.hours for minute in schedule.cron.minutes]
    else:
        times = [schedule.at or time()]
    day = schedule.once_on or start.date()
    while True:
        if schedule.on(day):
            for at in times:
                if (wall := datetime.combine(day, at)) >= start:
                    yield wall
        if schedule.repeat == "once":
            return
        day += timedelta(days=1)


def _instants(wall: datetime, tz: tzinfo) -> tuple[int, int]:
    """Return the first instant at which the clock shows this time or a later one, and the last at which it shows it.

    PEP 495: in a repeated hour fold=0 is the earlier instant; in a skipped one fold=0 counts with the offset from
    before the change, so it is the later.
    """
    first = int(wall.replace(tzinfo=tz, fold=0).timestamp())
    second = int(wall.replace(tzinfo=tz, fold=1).timestamp())
    if first <= second:
        return first, second
    before = datetime.fromtimestamp(second, tz).utcoffset()
    low, high = second, first  # the clock is put forward after low, and not after high
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, tz).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high, high


# -- what to do about it -------------------------------------------------------------------------


def decide(
    schedule: Schedule,
    *,
    last: int | None,
    now: float,
    tz: tzinfo,
    running: bool = False,
    queued: Sequence[int] = (),
) -> Decision:
    """Decide what to fire now.

    `last` is the `last` of the decision before, or None when this timing is new: then nothing has been missed, but for
    a `once`, whose time is taken as it was written. `running` says that a session of this schedule is at work,
    `queued` is what waits for its end.
    """
    if not schedule.enabled:
        return Decision(skipped=_skips((queued, "it is not enabled")), last=last)
    if last is None:
        last = 0 if schedule.repeat == "once" else int(now)
    if schedule.repeat != "once":
        last = max(last, int(now - schedule.max_delay) - schedule.jitter - _LOOK_BACK)
    late: list[int] = []
    on_time: list[int] = []
    release = 0
    coming: int | None = None
    for due in occurrences(schedule, last, math.inf, tz):
        # In order, so that `last` stands for all before it: a due time never overtakes another by its jitter.
        release = max(release, due + schedule.delay(due))
        if release > now:
            coming = release
            break
        last = due
        (on_time if now - release <= GRACE else late).append(due)

    oldest = now - max(schedule.max_delay, GRACE)
    fresh = [due for due in late if due + schedule.delay(due) >= oldest]
    waited = [due for due in queued if due + schedule.delay(due) >= oldest]
    kept = fresh if schedule.catch_up == "all" else fresh[-1:] if schedule.catch_up == "last" and not on_time else []
    due_now = (*waited, *kept, *on_time)
    begin = due_now if schedule.overlap == "parallel" else () if running else due_now[:1]
    rest = due_now[len(begin) :]
    note = f"the clock was put back behind {stamp(last)}, up to which all is done; nothing is due until then; "
    note += "if the clock was wrong then, give the schedule's file another name to begin anew"
    return Decision(
        fire=begin,
        waiting=rest if schedule.overlap == "queue" else (),
        skipped=_skips(
            (
                sorted({*late, *queued} - {*fresh, *waited}),
                f"more than max_delay_hours late ({schedule.max_delay / 3600:g})",
            ),
            (fresh[: len(fresh) - len(kept)], f"missed, and catch_up is {schedule.catch_up}"),
            (rest if schedule.overlap == "skip" else (), "the one before it is at work, and overlap is skip"),
        ),
        last=last,
        next=coming,
        note=note if last > now + GRACE else "",
    )


def stamp(due: int) -> str:
    """Return a due time as it stands in keys: UTC, such as 20261130T080000Z."""
    return (datetime(1970, 1, 1) + timedelta(seconds=due)).strftime("%Y%m%dT%H%M%SZ")


def _skips(*groups: tuple[Sequence[int], str]) -> tuple[Skipped, ...]:
    return tuple(Skipped(tuple(dues), why) for dues, why in groups if dues)
