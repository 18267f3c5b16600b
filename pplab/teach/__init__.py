"""Teaching: questions that are measured, hints, quizzes, predictions, and each learner's progress.

A ``Question`` judges an answer and gives a ``Verdict``; ``misconceptions`` lists the mistakes that
are recognised by name; ``progress`` keeps what a learner has done; ``quiz``, ``predict`` and
``lab`` are what a notebook calls.
"""
