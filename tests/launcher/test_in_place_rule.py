"""Which changes of hosts happen in running processes, which wait, which need a checkpoint."""

from types import SimpleNamespace
from typing import Any

import pytest
from hvd_ft.launcher.in_place import Done, change_in_place

from hvd_ft.launcher.watchers import HostChange
from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership
from hvd_ft.native.types import Left

N3 = Host("n3", 2)


class Made:
    """A job of three hosts, the second of which is a guest of the first."""

    def __init__(self, *, fits: bool = True, may_withdraw: bool = True) -> None:
        self.told: list[Any] = []
        self.states = {2: Left.MAY_RETURN, 3: Left.MAY_RETURN}
        self.members: Any = SimpleNamespace(
            members=Membership.parse("1;n0:2@0,n0:2@1-,n2:2@0"),
            withdraw=lambda names: may_withdraw,
            fitting=lambda hosts: {1: "n3"} if fits else None,
            refill=lambda taken, left, hosts: (
                set(taken) <= set(left) and not self.told.append(taken)
            ),
        )
        self.resizing: Any = SimpleNamespace(
            left=lambda names, lost: self.told.append((*names, lost)),
            joined=self.told.append,
        )

    def change(self, change: HostChange) -> Done:
        job: Any = SimpleNamespace(left=self.states.__getitem__)
        hosts: Any = None
        return change_in_place(change, self.members, hosts, self.resizing, job)


def test_hosts_are_given_up() -> None:
    less = HostChange("less", 4, withdrawn=("n2",))
    made = Made()
    assert made.change(less) is Done.YES and made.told == [("n2", False)]
    made = Made(may_withdraw=False)
    assert made.change(less) is Done.NO and made.told == []


def test_a_host_takes_a_place_once_all_of_its_ranks_have_left() -> None:
    made = Made()
    for state in ([Left.NO, Left.NO], [Left.MAY_RETURN, Left.NO], [Left.NO, Left.MAY_RETURN]):
        made.states = dict(zip((2, 3), state, strict=True))
        assert made.change(HostChange("more", 6, added=(N3,))) is Done.NOT_YET
    assert made.told == []
    made.states = {2: Left.MAY_RETURN, 3: Left.MAY_RETURN}
    assert made.change(HostChange("more", 6, added=(N3,))) is Done.YES
    assert made.told == [{1: "n3"}, (N3,)]


@pytest.mark.parametrize("other", [Left.NO, Left.MAY_RETURN])
def test_in_another_loop_ranks_do_not_return(other: Left) -> None:
    made = Made()
    made.states = {2: other, 3: Left.FOR_GOOD}
    assert made.change(HostChange("more", 6, added=(N3,))) is Done.NO
    assert made.told == []


def test_other_changes_need_a_checkpoint() -> None:
    assert Made().change(HostChange("both", 6)) is Done.NO
    assert Made(fits=False).change(HostChange("more", 6, added=(N3,))) is Done.NO
