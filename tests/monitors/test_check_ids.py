from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from core.clock import EPOCH
from monitors.check_ids import CheckIds

IDS = CheckIds("mon_one")
NOW = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)


@given(
    st.integers(0, 2**48 - 1),
    st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_an_id_is_read_back(claim: int, at: datetime) -> None:
    start = EPOCH + (at - EPOCH) // timedelta(milliseconds=1) * timedelta(milliseconds=1)
    assert IDS.decode(IDS.encode(claim, at)) == (claim, start)


def test_an_id_is_stable_and_of_one_monitor() -> None:
    public_id = IDS.encode(7, NOW)
    assert public_id == CheckIds("mon_one").encode(7, NOW)
    assert CheckIds("mon_two").decode(public_id) is None
    assert len({IDS.encode(claim, NOW)[4:8] for claim in range(50)}) > 40  # consecutive ids look different


@given(st.text(max_size=40) | st.from_regex(r"chk_[a-z2-7]{26}", fullmatch=True))
def test_what_is_no_id_is_none(text: str) -> None:
    assert IDS.decode(text) is None


def test_an_id_has_one_spelling() -> None:
    public_id = IDS.encode(7, NOW)
    assert IDS.decode(public_id.upper()) is None
    assert IDS.decode(public_id[4:]) is None
    assert IDS.decode(public_id + "a") is None
    last = "abcdefghijklmnopqrstuvwxyz234567"
    others = [public_id[:-1] + letter for letter in last if letter != public_id[-1]]
    assert [IDS.decode(other) for other in others] == [None] * 31
