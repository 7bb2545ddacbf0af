import os

import pytest


@pytest.fixture
def fast_disk(monkeypatch):
    """What is written need not survive a power cut here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
