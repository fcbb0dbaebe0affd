"""What a snapshot keeps of DistributedDataParallel's wrappers."""

import pytest

from hvd_ft.torch import wrapped


def test_the_flags_of_ddp_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapper:
        require_forward_param_sync = False
        require_backward_grad_sync = True

    monkeypatch.setattr(wrapped, "_wrappers", [])
    first, second = Wrapper(), Wrapper()
    for wrapper in (first, second):
        wrapped.add(wrapper)
    kept = wrapped.flags()
    first.require_forward_param_sync = True
    second.require_backward_grad_sync = False
    wrapped.restore_flags(kept)
    assert wrapped.flags() == kept == [[False, True], [False, True]]
