"""Messages of a group: which of the job's they are, and in which order they are received."""

from collections import defaultdict, deque
from typing import Any

import numpy as np
import pytest
import torch

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed import messages as module
from hvd_ft.torch.distributed.messages import _TAGS, Messages


class Job:
    """Stands for `hvd_ft.p2p`: what is sent to a rank comes from it."""

    def __init__(self) -> None:
        self.on_the_way: dict[tuple[int, int], deque[np.ndarray]] = defaultdict(deque)

    def ft_send(self, array: np.ndarray, dest: int, tag: int) -> None:
        self.on_the_way[dest, tag].append(array.copy())

    def ft_recv(self, array: np.ndarray, source: int, tag: int) -> np.ndarray:
        found = self.on_the_way[source, tag].popleft()
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        return found


@pytest.fixture(name="job")
def stand_for_the_job(monkeypatch: pytest.MonkeyPatch) -> Job:
    job = Job()
    monkeypatch.setattr(module, "p2p", job)
    return job


def sent(messages: Messages, *numbers: float, dtype: Any = torch.float32, tag: int = 3) -> None:
    messages.send(torch.tensor(numbers, dtype=dtype), 1, tag)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_the_first_receive_gets_the_first_message(job: Job, dtype: Any) -> None:
    """Whichever is waited for first."""
    messages = Messages((4, 7), 0)
    first, second, other = (torch.zeros(2, dtype=dtype) for _ in range(3))
    receipts = [messages.receive(each, 1, 3) for each in (first, second)]
    elsewhere = messages.receive(other, 1, 4)
    for numbers in ((1, 0), (0, 1)):
        sent(messages, *numbers, dtype=dtype)
    sent(messages, 1, 1, dtype=dtype, tag=4)
    assert not receipts[0].is_completed()
    assert receipts[1].wait() and receipts[0].is_completed()
    assert [each.tolist() for each in (first, second, other)] == [[1, 0], [0, 1], [0, 0]]
    assert elsewhere.result()[0] is other and other.tolist() == [1, 1]
    assert list(job.on_the_way) == [(7, 3), (7, 4)], "ranks and tags of the job"


def test_each_group_has_tags_of_its_own(job: Job) -> None:
    for number in (1, 2):
        sent(Messages((4, 7), number), number)
    assert [tag for _, tag in job.on_the_way] == [_TAGS + 3, 2 * _TAGS + 3]
    with pytest.raises(HvdFtError, match=f"tag={_TAGS} is not allowed in this group"):
        sent(Messages((4, 7), 1), 1, tag=_TAGS)
    sent(Messages((4, 7), 0), 1, tag=_TAGS)


def test_a_message_may_be_received_between_other_elements(job: Job) -> None:
    messages, whole = Messages((4, 7), 0), torch.zeros(2, 3)
    sent(messages, 1, 2)
    messages.receive(whole[:, 1], 1, 3).wait()
    assert whole.tolist() == [[0, 1, 0], [0, 2, 0]]
