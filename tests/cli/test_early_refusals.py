"""What is refused before Spark is started, and in words."""

import pytest

from happened import tracking
from happened.cli import main
from happened.core.errors import LocalProtocolError


@pytest.mark.parametrize("command", ["analyze", "order", "stamp", "rebuild"])
def test_a_missing_trace_and_an_existing_directory(tmp_path, capsys, monkeypatch, command):
    def start(master=None):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("happened.spark.session.session", start)
    assert main([command, str(tmp_path / "nothing"), "--out", str(tmp_path / "out")]) == 2
    assert "no such file or directory" in capsys.readouterr().err
    (tmp_path / "trace").mkdir()
    assert main([command, str(tmp_path / "trace"), "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_options_a_tracker_does_not_have():
    with pytest.raises(LocalProtocolError, match=r"p1 does not take these options: .*'b'"):
        tracking.create("p1:3", 0, 4)


def test_a_chat_with_oneself(capsys):
    assert main(["chat", "alice", "--peer", "alice=127.0.0.1:7001", "--plaintext"]) == 2
    assert "that is you" in capsys.readouterr().err
