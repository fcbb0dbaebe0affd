"""What an Accelerator cannot do in a job is refused with its reason."""

import pytest
from accelerate.state import PartialState

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.torch.accelerate import job


def test_another_backend_is_refused() -> None:
    with pytest.raises(HvdFtError, match=r"backend='gloo'\) does not survive the death of a rank"):
        job._backend(None, cpu=True, backend="gloo")


def test_an_accelerator_made_before_the_import_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "in_job", lambda: True)
    monkeypatch.setattr(PartialState, "_shared_state", {"backend": None})
    with pytest.raises(HvdFtError, match="so each rank would train alone: move the import up"):
        job.adapt.__wrapped__()
