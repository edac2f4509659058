"""A watched run's log brought up to what Redis holds; what Redis has lost is kept, and noted as missing."""

from __future__ import annotations

from gateway.fanout.history import History
from gateway.fanout.hub import Watch
from gateway.fanout.runlog import RunLog

__all__ = ["catch_up"]


async def catch_up(watch: Watch, history: History, *, memory: int) -> None:
    """Read what ``watch`` lacks; raises a ``RedisError`` or ``OSError`` while Redis is away.

    The log is compared at its head before anything is added: a log that went back may have grown again, with other
    events at the same positions. ``memory`` bounds the bytes of JSON of a new log.
    """
    run_log = watch.log
    goes_on = False
    while run_log is not None:
        entries = await history.page_from(watch.run, run_log.position)
        if not entries:
            watch.missing = True
            [watch.standing] = await history.standings([watch.run])
            return
        goes_on = entries[0].position.epoch == run_log.epoch
        if entries[0].position == run_log.position:
            goes_on = run_log.ends_with(entries[0])
            if goes_on:
                watch.missing = False
                entries = entries[1:]
                if not entries:
                    return
        for entry in entries if goes_on else ():
            if entry.position != (run_log.epoch, run_log.head + 1):
                break
            run_log.append(entry)
        if not goes_on or run_log.position != entries[-1].position:
            break
        watch.brought()

    tail = await history.tail(watch.run, memory)
    if not tail:
        [watch.standing] = await history.standings([watch.run])
        watch.missing = run_log is not None
        return
    watch.missing, watch.standing = False, None
    epoch, first = tail[0].position
    if run_log is None or not goes_on or run_log.epoch != epoch:
        run_log = watch.log = RunLog(epoch, head=first - 1, memory=memory)
    elif first > run_log.head + 1:
        run_log.skip(first - 1)
    for entry in tail:
        if entry.position.seq > run_log.head:
            run_log.append(entry)
