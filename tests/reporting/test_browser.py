"""The page in a browser: filter, select, follow, colour, collapse, search; no error in its log."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import lucid_fx

sys.path.append(str(Path(__file__).resolve().parent))
from _graphs import HOSTILE, blocks, fashion

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs Debian's packages chromium and chromium-driver",
)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1500,1200",
)  # fmt: skip

Open = Callable[[Path], Any]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens a report; at the end there must be no error in the browser's log."""

    def open_report(path: Path) -> Any:
        browser.get(path.as_uri())
        ready = "return window.lucidReport !== undefined && lucidReport.ready !== null"
        WebDriverWait(browser, 30).until(lambda driver: driver.execute_script(ready))
        return browser

    yield open_report
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.fixture(scope="module")
def fashion_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    exact, coded, samples = fashion()
    return lucid_fx.report(exact, coded, tmp_path_factory.mktemp("f") / "r.html", data=samples)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    folder = tmp_path_factory.mktemp("large")

    def of(count: int) -> Path:
        path = folder / f"{count}.html"
        if not path.exists():
            model = lucid_fx.trace(blocks(count))
            lucid_fx.report(model, model, path)
        return path

    return of


def hook(driver: Any, call: str, *arguments: Any) -> Any:
    return driver.execute_script(f"return lucidReport.{call}(...arguments)", *arguments)


def place_in(driver: Any, side: str, name: str) -> tuple[float, float]:
    """Where a node is on the screen, from the middle of its canvas."""
    x, y = driver.execute_script(
        "const p = panes[arguments[0]], b = p.find(arguments[1]);"
        "return [(b.x - p.x) * p.scale, (b.y - p.y) * p.scale]", side, name
    )  # fmt: skip
    return x, y


def click_node(driver: Any, side: str, name: str) -> None:
    x, y = place_in(driver, side, name)
    canvas = driver.find_element(By.ID, side)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    strip = driver.execute_script("return STRIP") / 2  # the graph ends where the strip begins
    ActionChains(driver).move_to_element_with_offset(
        canvas, round(x - strip), round(y)
    ).click().perform()


def test_the_ledger_filters(opened: Open, fashion_report: Path) -> None:
    driver = opened(fashion_report)
    rows = "return document.querySelectorAll('#ledger tr').length"
    _, coded, _ = fashion()
    assert driver.execute_script(rows) == len(coded.ledger)
    driver.find_element(By.ID, "filter").send_keys("batchnorm")
    wanted = [entry for entry in coded.ledger if entry.op_type == "BatchNormalization"]
    assert 0 < driver.execute_script(rows) == len(wanted) < len(coded.ledger)
    assert driver.find_element(By.ID, "matches").text.startswith(f"{len(wanted)} of ")
    driver.find_element(By.ID, "filter").clear()
    driver.find_element(By.ID, "filter").send_keys("no such text")
    assert driver.execute_script(rows) == 0
    driver.find_element(By.ID, "filter").send_keys(Keys.BACKSPACE * len("no such text"))
    status = next(iter(coded.ledger)).status
    Select(driver.find_element(By.ID, "status")).select_by_value(status)
    assert driver.execute_script(rows) == coded.ledger.counts()[status]


def test_a_node_that_is_clicked_shows_its_partner_in_the_other_view(
    opened: Open, fashion_report: Path
) -> None:
    driver = opened(fashion_report)
    name = hook(driver, "shown", "left")[2]
    click_node(driver, "left", name)
    assert hook(driver, "selected") == {"side": "left", "name": name}
    partners = hook(driver, "highlighted", "right")
    _, coded, _ = fashion()
    owners = {n.name for n in coded.model.graph if name in lucid_fx.ir.provenance.origins(n)}
    assert partners and set(partners) == owners
    assert name in driver.find_element(By.ID, "panel").text
    assert partners[0] in driver.find_element(By.ID, "panel").text
    mine, its = place_in(driver, "left", name), place_in(driver, "right", partners[0])
    assert its == pytest.approx(mine, abs=1), "the partner is not beside the node"


@pytest.mark.parametrize("title", ["fused", "prepared", "onnxruntime"])
def test_every_view_is_linked(opened: Open, fashion_report: Path, title: str) -> None:
    driver = opened(fashion_report)
    Select(driver.find_element(By.ID, "view-right")).select_by_value(title)
    found = []
    for name in hook(driver, "shown", "left"):
        assert hook(driver, "select", "left", name)
        found.append(bool(hook(driver, "highlighted", "right")))
    assert sum(found) > 0.9 * len(found)


def test_a_row_of_the_ledger_selects_its_node(opened: Open, fashion_report: Path) -> None:
    driver = opened(fashion_report)
    row = driver.find_elements(By.CSS_SELECTOR, "#ledger tr")[3]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", row)
    row.click()
    assert hook(driver, "selected")["name"] == row.find_element(By.TAG_NAME, "td").text


def test_colours_switch_and_each_says_what_it_means(opened: Open, fashion_report: Path) -> None:
    driver = opened(fashion_report)
    legends, pictures = set(), set()
    for mode in ("status", "error", "time", "op"):
        Select(driver.find_element(By.ID, "colour")).select_by_value(mode)
        hook(driver, "paint", "left")
        legends.add(driver.find_element(By.ID, "legend").text)
        pictures.add(driver.execute_script("return document.getElementById('left').toDataURL()"))
    assert len(legends) == len(pictures) == 4


def test_views_pan_zoom_and_stay_together(opened: Open, fashion_report: Path) -> None:
    driver = opened(fashion_report)
    canvas = driver.find_element(By.ID, "left")
    before = hook(driver, "place", "left"), hook(driver, "place", "right")
    ActionChains(driver).move_to_element(canvas).click_and_hold().move_by_offset(
        0, -120
    ).release().perform()
    after = hook(driver, "place", "left")
    assert after["y"] == pytest.approx(before[0]["y"] + 120 / after["scale"], abs=2)
    assert hook(driver, "selected") is None, "a drag is no click"
    assert hook(driver, "place", "right")["y"] != before[1]["y"]
    driver.execute_script(
        "arguments[0].dispatchEvent(new WheelEvent('wheel', {deltaY: -300, cancelable: true}))",
        canvas,
    )
    zoomed = hook(driver, "place", "left")
    assert zoomed["scale"] > after["scale"]
    assert hook(driver, "place", "right")["scale"] == zoomed["scale"]


def test_scopes_collapse_and_keep_the_selection(opened: Open, large: Callable[[int], Path]) -> None:
    driver = opened(large(1000))
    hook(driver, "select", "left", "/stage0/block3/branch0/op0")
    Select(driver.find_element(By.ID, "collapse")).select_by_value("2")
    assert len(hook(driver, "shown", "left")) < 300
    assert hook(driver, "selected")["name"] == "stage0/block3"
    assert hook(driver, "highlighted", "right") == ["stage0/block3"]


def test_a_node_is_found_by_name(opened: Open, large: Callable[[int], Path]) -> None:
    driver = opened(large(1000))
    driver.find_element(By.ID, "search").send_keys("BLOCK70/branch0/op1")
    assert hook(driver, "selected")["name"] == "/stage1/block70/branch0/op1"
    x, y = place_in(driver, "left", "/stage1/block70/branch0/op1")
    assert abs(x) < 1 and abs(y) < 1


def test_charts_are_drawn_when_they_are_seen(opened: Open, fashion_report: Path) -> None:
    driver = opened(fashion_report)
    for name in ("errors", "layers", "times", "histograms"):
        chart = driver.find_element(By.ID, name)
        driver.execute_script("arguments[0].scrollIntoView()", chart)
        WebDriverWait(driver, 20).until(
            lambda _, chart=chart: chart.find_elements(By.CSS_SELECTOR, ".trace path")
        )
    ends = driver.find_elements(By.CSS_SELECTOR, "#histograms .shapelayer path")
    assert len(ends) >= 2, "the chosen range is not shown"


def test_names_of_a_model_are_shown_as_text(opened: Open, tmp_path: Path) -> None:
    model = blocks(5, HOSTILE)
    driver = opened(lucid_fx.report(model, model, tmp_path / "r.html"))
    assert hook(driver, "select", "left", HOSTILE)
    assert HOSTILE in driver.find_element(By.ID, "panel").text
    assert driver.find_element(By.CSS_SELECTOR, "#ledger td").text == HOSTILE
    assert driver.find_elements(By.TAG_NAME, "img") == []


def test_a_thousand_nodes_open_within_three_seconds(
    opened: Open, large: Callable[[int], Path]
) -> None:
    driver = opened(large(1000))
    assert driver.execute_script("return lucidReport.ready") < 3000


@pytest.mark.slow
def test_five_thousand_nodes_stay_usable(opened: Open, large: Callable[[int], Path]) -> None:
    driver = opened(large(5000))
    assert driver.execute_script("return lucidReport.ready") < 10000
    assert min(hook(driver, "paint", "left") for _ in range(5)) < 100
    driver.find_element(By.ID, "fit-left").click()
    assert min(hook(driver, "paint", "left") for _ in range(5)) < 100
    driver.execute_script("panes.left.scale = 0.008")  # every box and edge is on the canvas
    assert min(hook(driver, "paint", "left") for _ in range(5)) < 100
    assert len(driver.find_elements(By.CSS_SELECTOR, "#ledger tr")) == 500
    took = (
        "const t = performance.now(); lucidReport.select('left', '/stage3/block150/branch0/op0');"
    )
    assert driver.execute_script(took + "return performance.now() - t") < 200
