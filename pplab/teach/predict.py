"""Predict, then run: what a learner commits to before a cell, shown against what came out.

    guess = pplab.predict("01.alone", "What share of the time are the four ranks idle?", unit="%")
    guess                          # a cell of its own: the field to fill in
    ...
    guess.against(alone.bubble)    # "you predicted 50 %; it is 75 %: 25 points too low"

Nothing waits for an answer. Where none was given, ``against`` says what came out and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pplab.teach.progress import Progress
from pplab.teach.question import number_of

if TYPE_CHECKING:
    from pplab.view.quiz import QuestionsView

#: A number this close to the result counts as a hit: 5 % of it, or 2 points of a percentage.
CLOSE, POINTS = 0.05, 2.0


class Prediction:
    """One prompt; `value` is what the learner predicts, None before they do.

    Numbers are in `unit`; with unit "%" that is per cent, while results are shares (0.27).
    """

    def __init__(
        self,
        key: str,
        text: str,
        *,
        choices: Sequence[str] = (),
        unit: str = "",
        progress: Progress | None = None,
    ) -> None:
        self.key, self.text, self.unit = f"predict {key}", text, unit
        self.choices = list(choices)
        self.progress = progress or Progress()
        self._view: QuestionsView | None = None

    @property
    def value(self) -> float | str | None:
        """The prediction: a number in `unit`, or the text of the choice."""
        answer = self.progress.get(self.key).get("answer")
        if answer is None:
            return None
        if self.choices:
            return self.choices[answer] if answer in range(len(self.choices)) else None
        return number_of(answer)

    def give(self, answer: Any) -> dict[str, Any]:
        """Keep a prediction (a number, or the number of a choice); what the page says of it."""
        if not self.choices and number_of(answer) is None:
            return {"state": "wrong", "sign": "✗", "reason": f"{answer!r} is not a number."}
        seen = "result" in self.progress.get(self.key)
        self.progress.note(self.key, answer=answer, after=seen)
        reason = "although the result was there already." if seen else "Now run the next cells."
        return {"state": "kept", "sign": "●", "head": "kept" + ",."[not seen], "reason": reason}

    def against(self, result: float | str, *, measured: bool = False) -> None:
        """Print the prediction beside `result`: a share where the unit is "%", else a number or
        one of the choices. `measured` marks a value that differs from run to run.
        """
        mark = "[measured] " if measured else ""
        print(mark + self.sentence(result))
        self.progress.note(self.key, result=result if isinstance(result, str) else float(result))

    def sentence(self, result: float | str) -> str:
        """Prediction and result in one sentence."""
        mine = self.value
        if isinstance(result, str) or isinstance(mine, str):
            if mine is None:
                return f"no prediction given; it is: {result}"
            verdict = "as predicted" if mine == result else "not as predicted"
            return f"you predicted: {mine}; it is: {result} ({verdict})"
        value = 100 * result if self.unit == "%" else result
        it_is = f"it is {self._say(value)}"
        if mine is None:
            return f"no prediction given; {it_is}"
        if self.unit == "%" and 0 < mine < 1 <= value:
            mine *= 100  # 0.5 was meant as a share
        off = mine - value
        close = abs(off) <= (POINTS if self.unit == "%" else CLOSE * abs(value))
        way = "too high" if off > 0 else "too low"
        amount = f"{abs(off):.0f} points" if self.unit == "%" else self._say(abs(off))
        return f"you predicted {self._say(mine)}; {it_is}: " + (
            "well predicted" if close else f"{amount} {way}"
        )

    def _say(self, value: float) -> str:
        digits = f"{value:.1f}" if self.unit == "%" else f"{value:.4g}"
        return f"{digits.removesuffix('.0')} {self.unit}".rstrip()

    def view(self) -> QuestionsView:
        """The prompt as a widget."""
        from pplab.view.quiz import QuestionsView

        before = self.progress.get(self.key)
        card: dict[str, Any] = {"text": self.text, "options": self.choices, "unit": self.unit}
        if self.value is not None:
            reason = "your prediction from before; change it as you like."
            said = {"state": "kept", "sign": "●", "head": "kept:", "reason": reason}
            card |= {"answer": before["answer"], "said": said}
        self._view = QuestionsView(
            [card],
            lambda _, answer: self.give(answer),
            title="Predict",
            button="Keep my prediction",
            counted="",
        )
        return self._view

    def __repr__(self) -> str:
        return f"Predict: {self.text}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return self.view()._repr_mimebundle_(**kwargs)


def predict(key: str, text: str, *, choices: Sequence[str] = (), unit: str = "") -> Prediction:
    """A prompt for a prediction, kept per learner under `key` ("01.alone").

    With `choices` one of them is chosen; otherwise the answer is a number in `unit`.
    """
    return Prediction(key, text, choices=choices, unit=unit)
