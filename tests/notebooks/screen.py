"""Outputs of a cell as JupyterLab shows them, out of the messages that a kernel sends.

nbval appends every output to its list. JupyterLab does more: an Output widget takes what is printed
while it is open, ``clear_output`` empties the cell, ``display(..., display_id=...)`` can be updated
later. Notebooks that use these fail under plain nbval, so ``Screen`` stands between the two.
"""

from __future__ import annotations

from typing import Any

#: Messages that show something, or take it away, in the cell or in an Output widget.
SHOWN = ("stream", "display_data", "execute_result", "update_display_data", "clear_output")


class Screen:
    """What one notebook shows; `outputs` is nbval's list for the cell that runs now."""

    def __init__(self) -> None:
        self.cell_message: str | None = None
        self.outputs: list[Any] = []
        self._output_widgets: set[str] = set()
        self._taken: dict[str, str] = {}  # Output widget -> message whose outputs it takes
        self._displays: dict[str, list[tuple[list[Any], int]]] = {}
        self._clear_before_next = False

    def start(self, cell_message: str) -> None:
        """A cell was sent to the kernel as message `cell_message`."""
        self.cell_message = cell_message
        self._clear_before_next = False

    def takes(self, message: dict[str, Any], outputs: list[Any] | None) -> bool:
        """True when the message is dealt with here; otherwise nbval appends it to `outputs`."""
        self.outputs = outputs if outputs is not None else []
        kind, content = message["msg_type"], message["content"]
        if kind in ("comm_open", "comm_msg"):
            self._note_output_widget(kind, content)
            return False
        if kind not in SHOWN:
            return False
        parent = message["parent_header"].get("msg_id")
        if parent in self._taken.values():
            return True  # inside an Output widget, not in the cell
        if kind == "update_display_data":
            self._update(content)
            return True
        if parent != self.cell_message:
            return False  # of an earlier cell: nbval leaves it out
        if kind == "clear_output":
            if content.get("wait"):
                self._clear_before_next = True
            else:
                self._clear()
            return True
        if self._clear_before_next:
            self._clear()
        name = content.get("transient", {}).get("display_id")
        if name:
            place = (self.outputs, len(self.outputs))  # where nbval is about to put it
            self._displays.setdefault(name, []).append(place)
        return False

    def _note_output_widget(self, kind: str, content: dict[str, Any]) -> None:
        comm, state = content["comm_id"], content.get("data", {}).get("state", {})
        if kind == "comm_open" and state.get("_model_name") == "OutputModel":
            self._output_widgets.add(comm)
        if comm in self._output_widgets and "msg_id" in state:
            if state["msg_id"]:
                self._taken[comm] = state["msg_id"]
            else:
                self._taken.pop(comm, None)

    def _clear(self) -> None:
        self._clear_before_next = False
        self._displays = {
            name: [place for place in places if place[0] is not self.outputs]
            for name, places in self._displays.items()
        }
        self.outputs.clear()

    def _update(self, content: dict[str, Any]) -> None:
        for outputs, index in self._displays.get(
            content.get("transient", {}).get("display_id"), []
        ):
            if index < len(outputs):
                outputs[index]["data"] = content["data"]
                outputs[index]["metadata"] = content.get("metadata", {})
