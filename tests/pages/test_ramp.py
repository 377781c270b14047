from __future__ import annotations

import re

from tokagnostic.pages.ramp import contrast, shade


def colours(share: float) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", shade(share)))


def test_a_number_can_be_read_on_every_shade() -> None:
    for share in range(101):
        made = colours(share)
        assert contrast(made["light"], made["light-ink"]) >= 4.5
        assert contrast(made["dark"], made["dark-ink"]) >= 4.5


def test_more_is_darker_on_light_pages_and_lighter_on_dark_ones() -> None:
    for share in range(100):
        less, more = colours(share), colours(share + 1)
        assert contrast(more["light"], "#ffffff") > contrast(less["light"], "#ffffff")
        assert contrast(more["dark"], "#000000") > contrast(less["dark"], "#000000")


def test_no_share_has_no_colour_and_what_is_outside_has_that_of_the_end() -> None:
    assert shade(None) == ""
    assert shade(100.0000001) == shade(100)
    assert shade(-0.0000001) == shade(0)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == contrast("#ffffff", "#000000") == 21
    assert round(contrast("#767676", "#ffffff"), 2) == 4.54
