"""Three learners in three kernels at once: each keeps what is theirs, and nothing stays behind."""

from __future__ import annotations

from benchmarks.learners import figures, hold


def test_three_learners_at_once_lose_and_mix_nothing(tmp_path):
    outcome = hold(3, spread=0.5, folder=tmp_path, steps=3, extra=0)
    assert outcome.left == []
    assert outcome.lost == {0: [], 1: [], 2: []}
    assert outcome.learners[1].state != outcome.learners[0].state
    for number, memory in outcome.rest.items():
        assert memory["kernel"] > 20 and memory["server"] > 20, number
        assert memory["count"] == 0, "a rank outlived its run"
        assert outcome.cooled[number]["server"] == 0 < outcome.cooled[number]["kernel"]
    entries = {e["id"]: e for e in figures(outcome, 0.5)}
    assert entries["labs.learners_kept"]["met"] and entries["labs.learners_left"]["met"]
    assert entries["labs.learner_s"]["value"] > 0
