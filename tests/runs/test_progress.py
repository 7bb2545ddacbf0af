"""Progress: what is shown where, and a rate that forgets compilation."""

import io
import math
import os
import sys

import pytest
from rich.console import Console

from conqur._messages import warn
from conqur.runs import progress
from conqur.runs.progress import Bar, Lines, Pace, Quiet


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_rate_leaves_out_what_came_before_the_first_step():
    pace = Pace(1000, 0)
    assert math.isnan(pace.rate)
    pace.update(160.0, 10, {})  # a minute of compiling
    assert math.isnan(pace.rate)
    pace.update(161.0, 30, {})
    assert pace.rate == 20
    pace.update(162.0, 70, {})
    assert pace.rate == 30


def test_the_rate_is_that_of_the_last_half_minute():
    pace = Pace(10**6, 0)
    pace.update(0.0, 0, {})
    pace.update(100.0, 1, {})  # compiled again
    for second in range(1, 32):
        pace.update(100.0 + second, 1 + 50 * second, {})
    assert pace.rate == 50


def test_one_long_step_still_has_a_rate():
    pace = Pace(10, 0)
    for step in range(4):
        pace.update(100.0 * step, step, {})
    assert pace.rate == 0.01
    assert pace.words == "0.01 steps/s, 0:11:40 left"


def test_no_time_is_promised_before_learning_and_fast_steps_are_forgotten():
    pace = Pace(1000, 0, learning_starts=100)
    for second, step in enumerate((20, 60, 100)):
        pace.update(float(second), step, {})
        assert "left" not in pace.words
    assert pace.words == "40 steps/s, not learning yet"
    pace.update(60.0, 102, {})  # the first update, with its compilation
    assert pace.words == ""
    pace.update(61.0, 104, {})
    assert pace.words == "2 steps/s, 0:07:28 left"


def test_a_resumed_run_that_learns_has_its_rate_at_once():
    pace = Pace(1000, 500, learning_starts=100)
    pace.update(0.0, 510, {})
    pace.update(1.0, 520, {})
    assert pace.words == "10 steps/s, 0:00:48 left"


def test_lines():
    clock, stream = Clock(), io.StringIO()
    lines = Lines(10_000, 2_000, Console(file=stream), clock)
    assert stream.getvalue() == "step 2,000 of 10,000: starting\n"
    for _ in range(11):
        clock.now += 1
        lines.update(int(2_000 + 100 * (clock.now - 100)))
    lines.update(3_200, mean_return=-20.5, loss=0.012345)
    clock.now += 1
    lines.update(3_300, loss=2.0)
    lines.close()
    assert stream.getvalue().splitlines()[1:] == [
        "step 2,500 of 10,000: 100 steps/s, 0:01:15 left",
        "step 3,000 of 10,000: 100 steps/s, 0:01:10 left",
        "step 3,300 of 10,000: 109 steps/s, 0:01:01 left, return -20.5, loss 2",
    ]


def test_the_last_line_is_not_said_twice():
    clock, stream = Clock(), io.StringIO()
    with Lines(10, 0, Console(file=stream), clock) as lines:
        clock.now += 5
        lines.update(10)
    assert stream.getvalue().splitlines() == ["step 0 of 10: starting", "step 10 of 10"]


def test_bar():
    clock, stream = Clock(), io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with Bar(10_000, 0, console, clock) as bar:
        bar.update(10)
        clock.now += 1
        bar.update(2_510, mean_return=3.25, loss=0.5)
    text = stream.getvalue()
    assert "starting" in text
    assert "step 2,510 of 10,000" in text
    assert "2,500 steps/s, 0:00:03 left, return 3.25, loss 0.5" in text


def test_a_terminal_of_80_columns_has_room_for_the_bar():
    clock, stream = Clock(), io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    with Bar(50_000_000, 0, console, clock) as bar:
        for step in (10, 25_012_345):
            clock.now += 1000
            bar.update(step, mean_return=-1234.5, loss=0.001234)
    last = stream.getvalue().split("step ")[-1]
    assert "25,012 steps/s, 0:16:39 left, return -1234, loss 0.001234" in last
    assert last.count("━") >= 15


def test_which_one_is_shown(monkeypatch, capsys):
    assert isinstance(progress(10, quiet=True), Quiet)
    with progress(10, quiet=True) as shown:
        shown.update(5)
    assert capsys.readouterr() == ("", "")
    with progress(10, start=3) as shown:
        assert isinstance(shown, Lines)
    assert capsys.readouterr() == ("", "step 3 of 10: starting\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress(10) as shown:
        assert isinstance(shown, Bar)


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="total must be a whole number of at least 1, got 0"):
        progress(0)


@pytest.mark.parametrize("kind", [Lines, Bar])
def test_what_nobody_reads_any_more_is_no_reason_to_stop(monkeypatch, kind):
    reader, writer = os.pipe()
    if kind is Bar:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with open(writer, "w", encoding="utf-8") as stderr:  # it is flushed in the end, too
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress(10) as shown:
            assert isinstance(shown, kind)
            os.close(reader)
            for step in range(10):
                shown.update(step)
            warn("nobody hears this")
        warn("nor this")


def test_closed_streams_say_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    with progress(10) as shown:
        shown.update(5)
    warn("nothing")
    assert capsys.readouterr().out == ""
