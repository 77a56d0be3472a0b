"""A real Chromium for tests of pages: `opened` is a function of a fixture, and what the page complains of fails the test."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = (1400, 900), (390, 844)


@pytest.fixture(scope="module")  # while it is open its event loop runs in this thread: not under other modules' tests
def chromium() -> Iterator[Any]:
    """The browser of this machine's own packages; the test is skipped, and says so, where there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"none of {', '.join(NAMES)} is on the PATH: no browser to open pages with")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[test]'")
    with sync.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Callable[..., Any]:
    """`with opened(path or address, size=PHONE, dark=True) as page`: errors on the console fail when the block ends."""

    @contextmanager
    def open_page(where: Path | str, size: tuple[int, int] = DESKTOP, dark: bool = False, **more: Any) -> Iterator[Any]:
        width, height = size
        scheme = "dark" if dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(where.as_uri() if isinstance(where, Path) else where)
        try:
            yield page
        finally:
            context.close()
        assert said == [], f"the page's console: {said}"

    return open_page


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where a test leaves its pictures: $ANE_SWEEP_SCREENSHOTS, which CI keeps, or a folder of its own."""
    folder = Path(os.environ.get("ANE_SWEEP_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
