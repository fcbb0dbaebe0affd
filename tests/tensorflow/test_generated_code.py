"""What AutoGraph generates is in no file, and can be read all the same."""

import inspect
import tempfile
import traceback
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from hvd_ft.tensorflow.generated_code import keep_generated_code_in_memory  # noqa: E402


def halve(x: Any) -> Any:
    while x > 1:
        if x > 100:
            raise ValueError("too large")
        x = x / 2
    return x


def test_generated_code_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_generated_code_in_memory()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    converted = tf.autograph.to_graph(halve)
    assert float(converted(tf.constant(8.0))) == 1.0
    assert "ag__.while_stmt" in inspect.getsource(converted)
    with pytest.raises(Exception, match="too large") as failed:
        converted(200.0)
    assert "raise" in "".join(traceback.format_exception(failed.value))
    assert list(tmp_path.iterdir()) == []
