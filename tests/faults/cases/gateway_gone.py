"""A gateway is killed, stops, or is left for another one."""

from __future__ import annotations

import signal
import time

from tests.faults.faults import fault
from tests.faults.stage import Stage

TAKE_NOTHING = 5


@fault("the gateway is killed and started again on its port", printed=(500,), short=(100,), unit="readers")
def gateway_killed(stage: Stage, readers: float) -> None:
    stage.start_redis()
    stage.under_load(runs=10, readers=int(readers))
    gateway = stage.gateways[0]
    gateway.signal(signal.SIGKILL)
    gateway.wait()
    stage.restart_gateway(gateway)
    stage.flowing()
    stage.calm()


@fault(
    "the gateway stops (SIGTERM), with readers that take nothing",
    printed=(500,),
    short=(100,),
    unit="readers",
)
def gateway_drained(stage: Stage, readers: float) -> None:
    stage.start_redis()
    stage.under_load(runs=10, readers=int(readers))
    stage.open_readers(TAKE_NOTHING, stage.runs, stalled=True)
    stage.until_open(int(readers))
    gateway = stage.gateways[0]
    stopped = time.monotonic()
    gateway.signal(signal.SIGTERM)
    code = gateway.wait(seconds=10)
    took = time.monotonic() - stopped
    if took > 2 or code not in (0, -signal.SIGTERM):
        stage.complain(f"the gateway took {took:.2f} s to end, with code {code}")
    stage.restart_gateway(gateway)
    stage.resume_stalled()
    stage.flowing()
    stage.calm()
    stage.seen()
    check_spread(stage, stopped, took)


def check_spread(stage: Stage, stopped: float, took: float) -> None:
    """Readers are let go over the whole time, and none of its tenths sees a third of them come back."""
    lost = [next((at for at in closed if at >= stopped), 0.0) for _, _, closed in stage.times]
    lost = [at - stopped for at in lost if at and at - stopped <= took + 0.2]
    back = [
        at - stopped
        for _, opened, _ in stage.times
        if (at := next((at for at in opened if at > stopped), 0.0))
    ]
    if not lost or max(lost) - min(lost) < 0.4:
        stage.complain(f"readers were let go within {max(lost) - min(lost) if lost else 0:.2f} s")
    tenths = [0] * 200
    for at in back:
        tenths[min(int(at * 10), 199)] += 1
    if max(tenths) > len(back) / 3:
        stage.complain(f"of {len(back)} readers {max(tenths)} came back within one tenth of a second")


@fault("readers change between two gateways all the time", printed=(10,), short=(2,))
def readers_move(stage: Stage, seconds: float) -> None:
    stage.start_redis()
    stage.start_gateway()
    stage.start_gateway()
    stage.under_load(moves=(1, 40))
    stage.away(seconds)
    stage.calm()
