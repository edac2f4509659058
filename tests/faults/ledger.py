"""What was published against what each reader saw: a pure comparison, which waits for nothing and opens nothing.

The agent's side is written down by the agent itself, before each event and in its own words, not read back from the
publisher. A mark stands for an event on both sides and is unique in its run, so that a lost event, a repeated one and
two that changed places are told apart, whatever became of their positions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from listeners.contract.events import Event
from listeners.contract.fold import RunState, fold, waiting
from listeners.contract.log import BATCH_EVENTS
from listeners.contract.position import ABSENT, Position

__all__ = ["Count", "Item", "Published", "Seen", "Verdict", "compare", "essence", "item_of", "mark_of"]

_BEGIN_EPOCH: Final = frozenset({"run_started", "run_restored"})


class Item(NamedTuple):
    """One event as a reader got it. ``news``: what it announces, the reason of a snapshot or ``run_restored``."""

    position: Position
    type: str
    mark: str
    news: str | None = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """One run as it was published: by writer, its events in order; the owner, who begins and ends it, stands first.

    ``cut`` names writers that were killed with events on their way: a log may hold less of them, but never with a
    hole. ``history`` is what the final state is the fold of, where that isn't the owner's beginning, everybody else's
    events, and the rest of the owner's.
    """

    run: str
    writers: Mapping[str, Sequence[Event]]
    cut: Collection[str] = ()
    history: Sequence[Event] | None = None

    def in_order(self) -> list[Event]:
        """Return all events in an order that folds to the final state."""
        if self.history is not None:
            return list(self.history)
        owner, *others = self.writers.values()
        return [*owner[:1], *(event for events in others for event in events), *owner[1:]]


@dataclass(kw_only=True)
class Seen:
    """One run as one reader saw it; ``ended``: ``"204"`` once it was told that nothing follows, else what it had.

    ``complaints``: what else was wrong; ``last_at``: monotonic seconds of its last event.
    """

    reader: str
    run: str
    items: Sequence[Item]
    state: RunState
    ended: str = "204"
    complaints: Sequence[str] = ()
    last_at: float = 0.0


@dataclass
class Count:
    """Events, over all readers. ``announced``: missing behind news that says so; ``repeated``: seen again in a new
    epoch that was announced, since nobody knows whether Redis had them before it lost them."""

    seen: int = 0
    lost: int = 0
    duplicated: int = 0
    disordered: int = 0
    announced: int = 0
    repeated: int = 0


@dataclass
class Verdict:
    """The numbers, and in words everything that is wrong."""

    count: Count = field(default_factory=Count)
    published: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every promise was kept."""
        count = self.count
        return not (self.complaints or count.lost or count.duplicated or count.disordered)


def mark_of(event: Event) -> str:
    """Return what names ``event`` in its run, on either side."""
    data, call = event.data, event.call
    if event.type == "x_n":
        return f"x_n {data.get('by')} {data.get('n')}"
    if event.type == "run_started":
        return f"run_started {data.get('title')}"
    if call is None:
        return event.type
    step = f" {data.get('progress')}" if event.type == "tool_progress" else ""
    # An attempt is counted at its start; an identification comes before the first one.
    attempt = "" if event.type == "tool_call_identified" else f" {call.attempt or 1}"
    return f"{event.type} {call.key}{attempt}{step}"


def item_of(position: Position, event: Event) -> Item:
    """Return what a reader notes of ``event`` at ``position``."""
    if event.type == "snapshot":
        return Item(position, "snapshot", "snapshot", str(event.data.get("reason")))
    news = "run_restored" if event.type == "run_restored" else None
    return Item(position, event.type, mark_of(event), news)


def essence(state: RunState) -> dict[str, Any]:
    """Return what two states of one run must agree on, however the events came: no positions, no times."""
    return {
        "status": state.status,
        "error": state.error and state.error.code,
        "calls": {
            call.key: (call.name, call.state, call.attempt, call.result_summary, call.error)
            for call in state.calls
        },
    }


def compare(
    published: Iterable[Published],
    seen: Iterable[Seen],
    *,
    news: Collection[str] = (),
    may_drop: Collection[str] = (),
) -> Verdict:
    """Compare the ledgers. ``news``: what this fault may make a gateway or a publisher announce; any other
    announcement is a complaint, and so is whatever was seen and never published. ``may_drop``: types that a full outbox
    drops first, which nobody announces.

    Raises ``ValueError`` for a ledger that can't be compared: two events of a run with one mark.
    """
    verdict = Verdict()
    told = {one.run: _Told(one) for one in published}
    verdict.published = sum(len(one.places) for one in told.values())
    watched = set()
    for one in seen:
        watched.add(one.run)
        if one.run not in told:
            verdict.complaints.append(f"{one.reader} of {one.run}: nobody has published this run")
        else:
            _Comparison(told[one.run], one, news, may_drop, verdict).make()
    verdict.complaints += [f"nobody has read {run}" for run in told if run not in watched]
    return verdict


class _Told:
    """One published run: where each mark stands, and the state it all comes to."""

    def __init__(self, published: Published) -> None:
        self.cut = frozenset(published.cut)
        self.lengths = {writer: len(events) for writer, events in published.writers.items()}
        self.types = {name: [event.type for event in events] for name, events in published.writers.items()}
        self.places: dict[str, tuple[str, int]] = {}
        for writer, events in published.writers.items():
            for index, event in enumerate(events):
                mark = mark_of(event)
                if mark in self.places:
                    raise ValueError(f"run {published.run} was told {mark!r} twice: a mark must be unique")
                self.places[mark] = (writer, index)
        state = waiting(published.run)
        for seq, event in enumerate(published.in_order(), 1):
            state = fold(state, Position(1, seq), event)
        self.essence = essence(state)


class _Comparison:
    """One reader's run against what was told of it."""

    def __init__(
        self, told: _Told, seen: Seen, news: Collection[str], may_drop: Collection[str], verdict: Verdict
    ) -> None:
        self._may_drop = may_drop
        self._told = told
        self._seen = seen
        self._news = news
        self._verdict = verdict
        self._count = verdict.count
        self._had: set[str] = set()
        self._next = dict.fromkeys(told.lengths, 0)
        # Writers of whom something may be missing, or come again, since news was told that nobody has followed up.
        self._excused: set[str] = set()
        self._rewound: set[str] = set()
        self._lost: set[tuple[str, int]] = set()
        self._repeats = 0
        self._last: Position | None = None

    def make(self) -> None:
        for item in self._seen.items:
            self._place(item)
            if item.news is not None:
                self._take_news(item)
            elif item.mark in self._told.places:
                self._take(item, *self._told.places[item.mark])
            else:
                self._complain(f"{item.mark!r} at {item.position} was never published")
        for complaint in self._seen.complaints:
            self._complain(complaint)
        for writer, length in self._told.lengths.items():
            if self._next[writer] < length and writer not in self._told.cut:
                self._miss(writer, range(self._next[writer], length), "at the end")
        if self._seen.ended != "204":
            self._complain(f"never got to the end: {self._seen.ended}")
        if (state := essence(self._seen.state)) != self._told.essence:
            self._complain(f"its final state differs: {_difference(self._told.essence, state)}")

    def _place(self, item: Item) -> None:
        """Judge an item by its position alone: no hole within an epoch, and no epoch that isn't begun."""
        last, position = self._last, item.position
        self._last = position
        if item.type == "snapshot":
            return
        if last is None or last == ABSENT or last.epoch != position.epoch:
            if position.seq != 1:
                self._complain(f"{position} without what stands before it")
            elif last is not None and last != ABSENT and item.type not in _BEGIN_EPOCH:
                self._complain(f"{position} begins an epoch with {item.type}")
        elif position.seq <= last.seq:
            self._complain(f"{position} came behind {last}")
        elif position.seq > last.seq + 1:
            self._complain(f"a hole from {last} to {position}")

    def _take_news(self, item: Item) -> None:
        if item.news not in self._news:
            self._complain(f"was told {item.news!r} at {item.position}, for which there is no reason")
        self._repeats += BATCH_EVENTS
        self._excused.update(self._next)
        self._rewound.update(self._next)

    def _take(self, item: Item, writer: str, index: int) -> None:
        count, due = self._count, self._next[writer]
        count.seen += 1
        again = item.mark in self._had
        self._had.add(item.mark)
        if index < due and writer not in self._rewound:
            if again:
                count.duplicated += 1
                self._complain(f"{item.mark!r} came again at {item.position}")
            else:
                self._too_late(item, writer, index)
            return
        if again:
            count.repeated += 1
            self._repeats -= 1
            if self._repeats == -1:
                self._complain(f"more than a batch came again, {item.mark!r} at {item.position} among it")
        if index > due:
            self._miss(writer, range(due, index), f"before {item.mark!r} at {item.position}")
        self._next[writer] = index + 1
        self._excused.discard(writer)
        self._rewound.discard(writer)

    def _miss(self, writer: str, all_places: range, where: str) -> None:
        types = self._told.types[writer]
        places = [place for place in all_places if types[place] not in self._may_drop]
        if not places:
            return
        if writer in self._excused:
            self._count.announced += len(places)
        else:
            self._count.lost += len(places)
            self._lost.update((writer, index) for index in places)
            self._complain(f"lost {len(places)} of {writer} {where}")

    def _too_late(self, item: Item, writer: str, index: int) -> None:
        # It was counted as missing when what follows it came first.
        if (writer, index) in self._lost:
            self._count.lost -= 1
        else:
            self._count.announced -= 1
        self._count.disordered += 1
        self._complain(f"{item.mark!r} at {item.position} came behind what follows it")

    def _complain(self, text: str) -> None:
        self._verdict.complaints.append(f"{self._seen.reader} of {self._seen.run}: {text}")


def _difference(wanted: Mapping[str, Any], had: Mapping[str, Any]) -> str:
    found = [
        f"{name} is {had[name]!r}, not {wanted[name]!r}"
        for name in ("status", "error")
        if had[name] != wanted[name]
    ]
    keys = [*wanted["calls"], *(key for key in had["calls"] if key not in wanted["calls"])]
    for key in keys:
        one, other = wanted["calls"].get(key), had["calls"].get(key)
        if one != other:
            found.append(f"call {key} is {other}, not {one}")
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
