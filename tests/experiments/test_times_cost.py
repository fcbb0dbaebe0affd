"""The core that does not measure is the present one but for its clocks."""

import pytest
from conftest import ROOT

from experiments.times_cost.unmeasured import LEFT_OUT


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_is_in_the_source(name: str) -> None:
    text = (ROOT / "hvd_ft" / "csrc" / name).read_text()
    for place in LEFT_OUT[name]:
        assert text.count(place) == 1
        text = text.replace(place, "")
    assert "now_ns" not in text and "times." not in text.replace("hvd_ft_times.h", "")
