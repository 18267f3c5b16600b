"""One output for everyone, and two timelines over each other."""

import base64
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import pplab.view
from pplab.core.costs import Costs
from pplab.core.schedules import gpipe, one_f_one_b
from pplab.core.timeline import Timeline
from pplab.view import TimelineView, assets, compare, timeline_bundle
from pplab.view.show import WIDGET, bundle

PLAN = one_f_one_b(4, 8)
COSTS = Costs(0.01, 0.02, unit="s")


def run(steps: int = 3, replicas: int = 1, slower: float = 1.1) -> Timeline:
    """A stand-in for a recorded run of several steps; the first one is the slowest."""
    parts, at = [], 50.0
    for step in range(steps):
        scale = slower * (3 if step == 0 else 1 + 0.01 * step)
        one = PLAN.simulate(Costs(0.01 * scale, 0.02 * scale, unit="s"))
        for replica in range(replicas):
            columns = one.columns()
            columns["step"] = np.full(len(one), step)
            columns["replica"] = np.full(len(one), replica)
            columns["start"], columns["end"] = one.start + at, one.end + at
            parts.append(columns)
        at += one.step_time + 0.1
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    about = {"source": "measured: paced", "schedule": "1F1B"}
    return Timeline.of(columns, PLAN.layout, **about)


def test_a_bundle_holds_widget_picture_and_words() -> None:
    data = timeline_bundle(PLAN.simulate())
    assert set(data) == {WIDGET, "image/png", "text/plain"}
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"].startswith("[simulated] 4 ranks")
    assert set(data[WIDGET]) == {"version_major", "version_minor", "model_id"}


def test_a_bundle_without_widget_or_picture() -> None:
    assert bundle(None, None, "words") == {"text/plain": "words"}
    assert set(bundle(({"text/html": "x"}, {}), b"png", "words")) == {"image/png", "text/plain"}


def test_a_widget_alone_displays_the_whole_bundle() -> None:
    view = TimelineView(PLAN.simulate(), memory=True)
    data = view._repr_mimebundle_()
    assert WIDGET in data and "image/png" in data
    before = view.rev
    view.show(gpipe(4, 8).simulate())
    assert view.rev > before and "GPipe" in view.meta["text"]
    assert "GPipe" in view._repr_mimebundle_()["text/plain"]


def test_what_a_notebook_stores_for_each_widget_is_small() -> None:
    view = TimelineView(PLAN.simulate())
    assert len(view._esm) < 25_000 and len(view._css) < 6_000
    assert len(view.spans) < 4_000
    assert "//" not in assets.module.__wrapped__("explorer.js", render="").split("atob")[0]


def test_compare_takes_the_typical_step_and_starts_at_zero() -> None:
    both = compare(PLAN.simulate(COSTS), run())
    assert both.simulated.start.min() == 0 == both.measured.start.min()
    assert len(both.measured.steps) == 1 and both.measured.steps != (0,)
    assert both.ratio == pytest.approx(1.1 * 1.01)
    assert "[measured] The measured step takes 1.11 times the simulated one" in str(both)
    assert set(both._repr_mimebundle_()) == {WIDGET, "image/png", "text/plain"}


def test_compare_two_simulations_or_two_runs() -> None:
    both = compare(gpipe(4, 8).simulate(), PLAN.simulate(backward=3))
    assert "[compared] The 1F1B step takes" in str(both)
    runs = compare(run(), replace(run(slower=1.3), source="measured: computed"))
    assert "[measured] The computed step takes 1.18 times the paced one" in str(runs)


def test_one_simulation_is_laid_over_every_replica() -> None:
    both = compare(PLAN.simulate(COSTS), run(replicas=2))
    assert both.simulated.replicas == both.measured.replicas == (0, 1)
    assert both.simulated.bubble == pytest.approx(PLAN.simulate(COSTS).bubble)


def test_equal_timelines_say_so() -> None:
    both = compare(PLAN.simulate(), PLAN.simulate())
    assert both.ratio == 1
    assert "no rank is busy or idle much longer" in str(both)


def test_table() -> None:
    one = PLAN.simulate(COSTS)
    slow = PLAN.simulate(Costs([[0.01], [0.01], [0.02], [0.01]], 0.02, unit="s"))
    table = compare(one, replace(slow, source="measured: paced")).table()
    assert [row.rank for row in table] == [0, 1, 2, 3]
    assert table[2].busy_difference == pytest.approx(0.08)
    assert table[0].busy_difference == pytest.approx(0)
    step = slow.step_time - one.step_time
    for row in table:
        assert row.busy_difference + row.idle_difference == pytest.approx(step)
    lines = str(table).splitlines()
    assert len(lines) == 5 and "busy measured [ms]" in lines[0] and "+80" in lines[3]
    assert table._repr_html_().count("<tr>") == 5


def test_compare_refuses_what_it_would_have_to_convert() -> None:
    with pytest.raises(ValueError, match=r"different units \('units' and 's'\).*run\.costs"):
        compare(PLAN.simulate(), run())
    with pytest.raises(ValueError, match="4 and 2 ranks"):
        compare(PLAN.simulate(), gpipe(2, 8).simulate())


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, pplab.view, pplab.view.show; "
        "print([m for m in ('torch', 'deepspeed', 'matplotlib', 'anywidget') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_names_are_found_when_asked_for() -> None:
    for name in pplab.view.__all__:
        assert getattr(pplab.view, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pplab.view.nothing  # noqa: B018
