"""One server for a class: a real hub, two learners, a real run each, and nothing left behind."""

from __future__ import annotations

import json
import time

import pytest

from tests.runs.hub import PASSWORD, missing, running_hub
from tests.runs.processes import none_left

RUN = """import os, pplab
plan = pplab.schedules.one_f_one_b(stages={stages}, micro_batches=4)
run = pplab.run(plan, pplab.models.paced({time}, {time}), steps={steps}, quiet=True)
print(os.environ["JUPYTERHUB_USER"], len(run.losses), run.timeline.stages, os.getcwd())
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    if reason := missing():
        pytest.skip(reason)
    with running_hub(tmp_path_factory.mktemp("hub"), PPLAB_MAX_RANKS="2") as running:
        yield running
    assert none_left(running.mark) == []  # a learner's process server ends after their kernel


@pytest.fixture(scope="module")
def kernels(hub):
    """A kernel of each of two learners, opened for chapter 1."""
    hub.start("ada", "bob")
    return {name: hub.kernel(name, "chapters/01_bubbles.ipynb") for name in ("ada", "bob")}


def test_only_the_password_of_the_class_opens_it(hub):
    assert hub.log_in("ada", "something else") == 403
    assert hub.log_in("ada", PASSWORD) == 200


def test_it_says_how_many_fit_and_whose_the_servers_are(hub):
    said = hub.log.read_text()
    assert "they can read each other's files" in said
    assert "2 ranks a learner at once" in said and "MB each fit into this machine" in said


def test_each_learner_has_the_course_and_it_is_theirs(hub, kernels):
    for name in ("ada", "bob"):
        listed = hub.ask("GET", f"/user/{name}/api/contents/chapters")["content"]
        assert "01_bubbles.ipynb" in {entry["name"] for entry in listed}
    mine = hub.homes / "ada" / "pplab" / "chapters" / "01_bubbles.ipynb"
    mine.write_text("{}")
    assert (hub.homes / "bob" / "pplab" / "chapters" / "01_bubbles.ipynb").stat().st_size > 1000


def test_two_learners_run_two_real_ranks_each_at_the_same_time(hub, kernels):
    cell = RUN.format(stages=2, time=0.005, steps=2)
    numbers = {name: kernel.send(cell) for name, kernel in kernels.items()}
    for name, kernel in kernels.items():
        said = kernel.finish(numbers[name])
        assert said.startswith(f"{name} 2 2 "), said
        assert f"/homes/{name}/pplab/chapters" in said


def test_progress_lies_in_the_home_of_the_learner(hub, kernels):
    for name, kernel in kernels.items():
        said = kernel.run(
            "from pplab.teach.progress import Progress\n"
            "Progress().answered('quiz 01.1', 'right'); print(Progress().path)"
        )
        path = hub.homes / name / ".local/state/pplab/progress" / f"{name}.json"
        assert str(path) in said
        assert json.loads(path.read_text())["learner"] == name
    from pplab.teach.classroom import classroom

    assert [one.name for one in classroom(hub.homes).learners] == ["ada", "bob"]


def test_more_ranks_than_allowed_are_refused_in_a_sentence(kernels):
    said = kernels["bob"].run(RUN.format(stages=4, time=0.001, steps=1))
    assert "this run needs 4 ranks, and each learner may run 2 at once here" in said


def test_ranks_of_all_notebooks_of_a_learner_count_together(hub, kernels):
    other = hub.kernel("bob", "chapters/00_start_here.ipynb")
    number = kernels["bob"].send("print('begins')\n" + RUN.format(stages=2, time=0.1, steps=4))
    ends = time.monotonic() + 60
    while len(hub.processes("bob")) < 6 and time.monotonic() < ends:  # until its ranks are there
        time.sleep(0.05)
    said = other.run(RUN.format(stages=2, time=0.001, steps=1))
    assert "2 of yours are running in other notebooks" in said
    assert "bob 4 2" in kernels["bob"].finish(number)
    assert other.run(RUN.format(stages=2, time=0.001, steps=1)).startswith("bob 1 2")


def test_a_server_killed_in_a_run_leaves_nothing_and_disturbs_nobody(hub, kernels):
    number = kernels["bob"].send(RUN.format(stages=2, time=0.05, steps=6))
    kernels["ada"].send(RUN.format(stages=2, time=0.5, steps=100))
    ends = time.monotonic() + 60
    while len(hub.processes("ada")) < 6 and time.monotonic() < ends:
        time.sleep(0.05)
    before = hub.processes("ada")
    assert len(before) >= 6  # server, kernel, process server, supervisor, two ranks
    (server,) = [p for p in before if "jupyterhub.singleuser" in p.cmdline()]
    server.kill()
    ends = time.monotonic() + 15
    while hub.processes("ada") and time.monotonic() < ends:
        time.sleep(0.05)
    assert hub.processes("ada") == []
    assert "bob 6 2" in kernels["bob"].finish(number)
