"""A lab: questions whose answers are measured, with hints, solutions and kept progress.

    lab = pplab.open_lab(1)        # shows what is solved so far
    lab.check("q1", bubble)        # not attempted / wrong, because ... / right / blocked
    lab.hint("q1")                 # a nudge; then an approach; then almost the code
    lab.solution("q1")

With $PPLAB_STRICT set, a check that does not come out right stops the notebook: graders and tests
want that, learners do not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from pplab.core.words import aligned
from pplab.teach.progress import Progress
from pplab.teach.verdict import STATES, Verdict, blocked, not_attempted, unanswered, wrong

DIFFICULTIES = ("easy", "medium", "hard", "open")
#: The labs there are.
LABS = (1, 2, 3, 4, 5, 6)
#: Code of each solution, written by tools/make_labs.py from labs/source.
SOLUTIONS = Path(__file__).parent / "labs" / "solutions.json"


@dataclass(frozen=True)
class Question:
    """One question of a lab.

    measure: (answer, lab) -> Verdict; it may simulate the answer or run it on real ranks. What it
    raises is a verdict too: an answer that breaks the check is wrong, and the error says why.
    minutes: what it takes, about; difficulty: one of DIFFICULTIES ("open": bring your own);
    hints: a nudge, an approach, almost the code; why: explanation beside the solution;
    gpus: CUDA GPUs without which it cannot be judged
    """

    title: str
    minutes: int
    difficulty: str
    measure: Callable[[Any, Lab], Verdict]
    hints: tuple[str, str, str]
    why: str
    gpus: int = 0

    def __post_init__(self) -> None:
        if self.difficulty not in DIFFICULTIES:
            raise ValueError(f"difficulty is one of {', '.join(DIFFICULTIES)}")
        if len(self.hints) != 3 or not all(self.hints):
            raise ValueError(f"{self.title!r} needs three hints: nudge, approach, almost the code")

    def judge(self, answer: Any, lab: Lab) -> Verdict:
        """What the measurement says of an answer; never raises for what an answer does."""
        if unanswered(answer):
            return not_attempted("fill in the cell above, then run both.")
        if self.gpus and (here := _gpus()) < self.gpus:
            return blocked(f"this question needs {self.gpus} GPUs, and this machine has {here}.")
        try:
            return self.measure(answer, lab)
        except Exception as error:
            return wrong(f"it stops with {type(error).__name__}: {error}")


@dataclass(frozen=True)
class Text:
    """Words for a learner: read as they are by a terminal, with code set apart in a notebook."""

    title: str
    body: str
    code: str = ""

    def __str__(self) -> str:
        code = f"\n\n{self.code}\n" if self.code else ""
        return f"{self.title}{code}\n{self.body}".rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        code = f"<pre><code>{escape(self.code)}</code></pre>" if self.code else ""
        body = escape(self.body).replace("\n", "<br>\n")
        return f"<p><b>{escape(self.title)}</b></p>{code}<p>{body}</p>"


@dataclass
class Lab:
    """One learner's lab.

    cases: runs that questions speak about, by name: made when first asked for, then kept
    """

    number: int
    title: str
    questions: Mapping[str, Question]
    cases: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    _made: dict[str, Any] = field(default_factory=dict, repr=False)

    def case(self, name: str) -> Any:
        """The run called `name`; the first call makes it, for real."""
        if name not in self.cases:
            raise LookupError(f"lab {self.number} has the cases {', '.join(self.cases)}")
        if name not in self._made:
            self._made[name] = self.cases[name]()
        return self._made[name]

    def check(self, name: str, answer: Any) -> Verdict:
        """Measure an answer and keep the outcome. Raises LookupError for an unknown question, and
        NotRight for any but a right answer where $PPLAB_STRICT is set."""
        verdict = self._question(name).judge(answer, self)
        self.progress.answered(self._key(name), verdict.state, misconception=verdict.misconception)
        if os.environ.get("PPLAB_STRICT"):
            verdict.require()
        return verdict

    def hint(self, name: str) -> Text:
        """The next hint: a nudge, an approach, almost the code; those given before stand above."""
        question = self._question(name)
        given = min(3, self.progress.get(self._key(name)).get("hints", 0) + 1)
        self.progress.note(self._key(name), hints=given)
        layers = ("a nudge", "an approach", "almost the code")
        lines = [
            f"{layer}: {text}" for layer, text in zip(layers, question.hints[:given], strict=False)
        ]
        more = "Call it again for more." if given < 3 else f'lab.solution("{name}") has the rest.'
        return Text(f"{name}: hint {given} of 3", "\n".join([*lines, more]))

    def solution(self, name: str) -> Text:
        """One way to solve a question, and why it is right; that it was looked up is kept."""
        question = self._question(name)
        self.progress.note(self._key(name), solution=True)
        code = json.loads(SOLUTIONS.read_text(encoding="utf-8")).get(self._key(name), "")
        return Text(f"{name}: one solution", question.why, code)

    # -- where one stands -----------------------------------------------------------------------

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Sign, name, title, minutes and difficulty, state of each question."""
        items = self.progress.items()
        found = []
        for name, question in self.questions.items():
            item = items.get(self._key(name), {})
            state = item.get("state", "not attempted")
            helped = ", solution seen" if item.get("solution") else ""
            if not helped and item.get("hints"):
                helped = f", {item['hints']} hint{'s' * (item['hints'] > 1)}"
            about = f"{question.minutes} min, {question.difficulty}"
            found.append((STATES[state], name, question.title, about, state + helped))
        return found

    def headline(self) -> str:
        """Title, minutes, and how many questions are solved."""
        rows = self.rows()
        solved = sum(row[0] == STATES["right"] for row in rows)
        minutes = sum(question.minutes for question in self.questions.values())
        return (
            f"Lab {self.number}: {self.title} ({minutes} minutes). "
            f"{solved} of {len(rows)} questions solved."
        )

    def __str__(self) -> str:
        return f"{self.headline()}\n{aligned(self.rows(), left=range(5))}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        left = " style='text-align:left'"
        head = "".join(
            f"<th scope='col'{left}>{text}</th>"
            for text in ("", "Question", "What", "Takes", "State")
        )
        body = "".join(
            "<tr>" + "".join(f"<td{left}>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows()
        )
        return (
            f"<table><caption{left}>{escape(self.headline())}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _key(self, name: str) -> str:
        return f"lab {self.number}.{name}"

    def _question(self, name: str) -> Question:
        if name not in self.questions:
            raise LookupError(f"lab {self.number} has the questions {', '.join(self.questions)}")
        return self.questions[name]


def open_lab(number: int) -> Lab:
    """A lab by its number, with the progress of whoever runs this notebook."""
    if number not in LABS:
        raise LookupError(f"there is no lab {number}; there are {', '.join(map(str, LABS))}")
    module = import_module(f"pplab.teach.labs.lab_{number}")
    return Lab(number, module.TITLE, module.QUESTIONS, getattr(module, "CASES", {}))


def _gpus() -> int:
    from pplab.runtime.hardware import hardware

    return len(hardware().gpus)
