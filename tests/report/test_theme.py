from __future__ import annotations

import itertools

import numpy as np
import pytest

from seqdg.report.charts import DARK, HUES, LIGHT, make_styles

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
SEEN_WITH = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}


def _linear(color: str) -> np.ndarray:
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def _contrast(a: str, b: str) -> float:
    light, dark = sorted((float(_linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _lab(linear: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear.clip(0, 1)
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_is_that_of_wcag_for_text_and_for_marks(theme):
    for role in ("text", "muted"):
        assert _contrast(theme[role], theme["paper"]) >= 4.5, role
    for role in (*HUES, "rule"):
        assert _contrast(theme[role], theme["paper"]) >= 3.0, role


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SEEN_WITH)
def test_the_first_six_colors_stay_apart_for_people_who_see_fewer(theme, sight):
    matrix = np.array(SEEN_WITH[sight])
    seen = {role: _lab(matrix @ _linear(theme[role])) for role in HUES[:6]}
    for a, b in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[a] - seen[b]) > 12, (a, b)


def test_fifty_algorithms_look_different():
    names = [f"algorithm {i}" for i in range(50)]
    assert len({(s.color, s.shape) for s in make_styles(names).values()}) == 50
