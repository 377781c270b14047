from __future__ import annotations

import pytest

from tokagnostic.pages.charts import CAUSES, cause_bars, length_bars, share_tracks

PAIR = {
    "orders": [1, 2, 3],
    "unique": {"any_order": [98.0, 75.0, None]},
    "weighted": {"any_order": [99.0, 80.0, None]},
    "intervals": {
        "unique": {"any_order": [[97.0, 99.0], [66.0, 81.0], [None, None]]},
        "weighted": {"any_order": [[98.0, 99.5], [71.0, 86.0], [None, None]]},
    },
    "causes": {
        "unique": {
            "special": [0.0, 0.0, None],
            "normalisation": [0.0, 0.0, None],
            "prefix": [0.0, 4.0, None],
            "more_tokens": [0.0, 13.0, None],
            "cut_points": [2.0, 8.0, None],
        }
    },
}


class TestTracks:
    def test_lie_between_a_round_number_and_a_hundred(self) -> None:
        tracks = share_tracks(PAIR)
        assert tracks["low"] == 60
        first, second, third = tracks["rows"]
        assert first["unique"] == {"share": 98.0, "at": 95.0, "interval": [97.0, 99.0], "span": [92.5, 97.5]}
        assert second["weighted"]["at"] == 50.0
        assert third["unique"] == {"share": None, "at": None, "interval": None, "span": None}

    def test_need_no_intervals_and_no_window(self) -> None:
        for absent in ({}, {"intervals": None}):
            bare = {name: PAIR[name] for name in ("orders", "unique", "weighted")} | absent
            assert share_tracks(bare)["low"] == 70
        empty = {"orders": [1], "unique": {"any_order": [None]}, "weighted": {"any_order": [None]}}
        assert share_tracks(empty)["rows"][0]["unique"]["at"] is None

    @pytest.mark.parametrize("share", [0.0, 100.0])
    def test_hold_the_ends(self, share) -> None:
        pair = {"orders": [1], "unique": {"any_order": [share]}, "weighted": {"any_order": [share]}}
        assert share_tracks(pair)["rows"][0]["unique"]["at"] == share


class TestCauses:
    def test_are_stacked_to_what_is_missed(self) -> None:
        bars = cause_bars(PAIR, "unique")
        assert bars is not None
        assert bars["high"] == 30
        assert [row["missed"] for row in bars["rows"]] == [2.0, 25.0, None]
        for row, share in zip(bars["rows"], PAIR["unique"]["any_order"], strict=True):
            if share is not None:
                assert share + sum(part["share"] for part in row["parts"]) == 100
                assert sum(part["width"] for part in row["parts"]) == pytest.approx(100 * row["missed"] / 30)
        assert bars["causes"] == ["cut_points", "more_tokens", "prefix"]
        assert [part["cause"] for part in bars["rows"][1]["parts"]] == ["cut_points", "more_tokens", "prefix"]

    def test_may_be_absent(self) -> None:
        assert cause_bars({"orders": [1]}, "unique") is None

    def test_are_those_of_the_measurement(self) -> None:
        from tokagnostic.evaluation.overlap.shares import CAUSES as MEASURED

        assert set(CAUSES) == set(MEASURED)


class TestLengths:
    def test_every_id_with_bytes_stands_in_one_bar(self) -> None:
        counts = [3, *range(1, 40)]
        bars = length_bars(counts)
        assert sum(bar["num_ids"] for bar in bars) == sum(counts[1:])
        assert [bar["label"] for bar in bars] == [*map(str, range(1, 16)), "16+"]
        assert max(bar["height"] for bar in bars) == 100

    def test_short_and_empty_vocabularies(self) -> None:
        assert length_bars(()) == length_bars([7]) == []
        assert length_bars([0, 2, 1]) == [
            {"label": "1", "num_ids": 2, "height": 100},
            {"label": "2", "num_ids": 1, "height": 50},
        ]
        assert length_bars([0, 0])[0]["height"] == 0
