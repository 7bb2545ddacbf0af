"""Asked to stop: once politely, twice at once."""

import contextlib
import signal
import threading

import pytest

from conqur.runs import stop_requested


@pytest.fixture
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_a_flag_and_the_second_acts_as_ever(handlers, number):
    got = []
    signal.signal(number, lambda *arguments: got.append(arguments[0]))
    with stop_requested() as stop:
        assert not stop
        signal.raise_signal(number)
        assert stop
        assert stop.signal is number
        assert got == []
        signal.raise_signal(number)
        assert got == [number]


def test_after_one_ctrl_c_the_other_signal_acts_at_once_too(handlers):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with stop_requested() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal is signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_come_back(handlers):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with contextlib.suppress(ZeroDivisionError), stop_requested():
        assert signal.getsignal(signal.SIGINT) is not before[0]
        raise ZeroDivisionError
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_what_is_ignored_stays_ignored(handlers):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_requested() as stop:
        signal.raise_signal(signal.SIGINT)
        assert not stop


def test_outside_the_main_thread_nothing_happens(handlers):
    found = []

    def work():
        with stop_requested() as stop:
            found.append(bool(stop))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
    assert signal.getsignal(signal.SIGINT) is before
