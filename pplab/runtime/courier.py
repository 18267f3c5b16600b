"""Late messages: a thread that sends each one when its time has come.

The receiver waits for a message that is really not there yet; nothing is said to it, and no clock
is compared. Links do not queue: messages that start together arrive together.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from torch import Tensor


class Parcel:
    """A message on its way: has the method of a communication that the sender uses."""

    def __init__(self, data: list[Tensor], peer: int, tag: int, due: float) -> None:
        self.data, self.peer, self.tag, self.due = data, peer, tag, due
        self.gone = threading.Event()
        self.work: Any = None
        self.error: BaseException | None = None

    def wait(self) -> None:
        """Return when it is completed; raises what sending it raised."""
        self.gone.wait()
        if self.error is not None:
            raise self.error
        self.work.wait()


class Courier:
    """Sends messages `seconds` later than it was told to."""

    def __init__(self, world: Any, seconds: float) -> None:
        self.world, self.seconds = world, seconds
        self.waiting: queue.SimpleQueue[Parcel] = queue.SimpleQueue()
        threading.Thread(target=self._deliver, daemon=True, name="courier").start()

    def send(self, data: list[Tensor], peer: int, tag: int) -> Parcel:
        """Take a message, as a process group does; it leaves later."""
        parcel = Parcel(data, peer, tag, time.perf_counter() + self.seconds)
        self.waiting.put(parcel)
        return parcel

    def _deliver(self) -> None:
        while True:  # as long as the rank lives
            parcel = self.waiting.get()
            time.sleep(max(0.0, parcel.due - time.perf_counter()))
            try:
                parcel.work = self.world.send(parcel.data, parcel.peer, parcel.tag)
            except BaseException as error:  # the rank's own thread raises it
                parcel.error = error
            parcel.gone.set()
