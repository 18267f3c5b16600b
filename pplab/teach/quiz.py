"""``pplab.quiz("01")``: the five questions at the end of a chapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pplab.teach import quizzes
from pplab.teach.progress import Progress
from pplab.teach.question import Choice, Number
from pplab.teach.verdict import Verdict

if TYPE_CHECKING:
    from pplab.view.quiz import QuestionsView


def quiz(chapter: str | int) -> QuestionsView:
    """The quiz of a chapter ("01" or 1): five questions, each answered at once and kept.

    What was answered before is shown again, so a restarted kernel loses nothing. Raises
    LookupError when there is no such chapter.
    """
    from pplab.view.quiz import QuestionsView  # anywidget loads with the first quiz

    name = quizzes.number(chapter)
    asked = quizzes.questions(name)
    progress = Progress()
    before = progress.items()
    cards = [card(one, before.get(f"quiz {name}.{i}", {})) for i, one in enumerate(asked, 1)]

    def judge(number: int, answer: Any) -> dict[str, Any]:
        verdict = asked[number].judge(answer)
        progress.answered(
            f"quiz {name}.{number + 1}",
            verdict.state,
            answer=answer,
            misconception=verdict.misconception,
        )
        return said(verdict)

    return QuestionsView(
        cards,
        judge,
        title=f"Quiz: {quizzes.CHAPTERS[name]}",
        intro="Five questions. A wrong answer is told what is wrong with it; try again.",
    )


def card(question: Choice | Number, before: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of a question: never what the right answer is."""
    shown: dict[str, Any] = {"text": question.text}
    if isinstance(question, Choice):
        shown["options"] = [option.text for option in question.options]
    else:
        shown["unit"] = question.unit
    if before.get("answer") is not None:
        shown |= {"answer": before["answer"], "said": said(question.judge(before["answer"]))}
    return shown


def said(verdict: Verdict) -> dict[str, Any]:
    """A verdict as the page shows it."""
    head = "wrong, because" if verdict.state == "wrong" and verdict.reason else verdict.state
    return {**verdict.as_json(), "head": head}
