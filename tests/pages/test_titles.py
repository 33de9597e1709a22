"""Every page opens in every language: its title is there, no exception, and no error before anything is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

TITLES = {
    "live_run.py": ("Live run", "现场运行"),
    "path.py": ("The path", "学习路线"),
    "steps.py": ("Step by step", "逐步重放"),
    "roofline.py": ("Roofline", "屋顶线"),
    "shapes.py": ("Shapes", "形状"),
    "batch.py": ("Batch and memory", "批与内存"),
    "sweeps.py": ("Live sweeps", "实测扫描"),
    "memory.py": ("KV and state", "KV 与状态"),
    "levers.py": ("Levers", "怎样变快"),
    "devices.py": ("Devices", "设备"),
    "map.py": ("How it got faster", "加速之路"),
    "machine.py": ("This machine", "本机"),
    "glossary.py": ("Words", "术语"),
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("page", TITLES)
def test_each_page_in_each_language(page: str, language: str, open_page: Callable[..., AppTest]) -> None:
    test = open_page(page, lang=language)
    assert not test.exception
    assert not test.error
    assert test.title[0].value == TITLES[page][("en", "zh").index(language)]
