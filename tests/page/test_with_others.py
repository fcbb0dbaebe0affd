"""The page of a real job, in a real browser, and scraped by a real Prometheus."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from conftest import HANG_SECONDS, ROOT
from job_statuses import job as made_job
from job_statuses import rank

from hvd_ft.job.page_messages import LinkStatus
from hvd_ft.page import server as page_server
from hvd_ft.status.snapshot import JobStatus

selenium = pytest.importorskip("selenium", reason="selenium is not installed: make setup has it")
_SCRIPT = ROOT / "tests" / "page" / "loop_script.py"
pytestmark = [pytest.mark.job]


@dataclass(frozen=True)
class Job:
    """A job with a page."""

    url: str
    token: str


def until(condition: Callable[[], Any]) -> None:
    """Waits until a condition holds; nothing tells a browser's or Prometheus's user of it."""
    end = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def needs(program: str, package: str) -> str:
    """Returns a program's path; skips without it."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not there: apt-get install {package}")
    return path


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job of two ranks that trains until it is ended."""
    command = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", "2", "--status-port", "0"]
    with (
        (tmp_path / "lines").open("w+") as lines,
        subprocess.Popen(
            [*command, sys.executable, str(_SCRIPT)], stdout=lines, stderr=lines
        ) as process,
    ):
        try:
            path = tmp_path / "lines"
            until(lambda: "status page: " in path.read_text(errors="replace"))
            line = path.read_text(errors="replace").splitlines()[0]
            url, token = line.split()[3], Path(line.split()[-1].rstrip(")"))
            found = Job(url, token.read_text().strip())
            until(lambda: (state_of(found)["status"] or {"step": 0})["step"] > 2)
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(HANG_SECONDS)


def state_of(job: Job) -> Any:
    """Returns the page's state."""
    return json.load(urllib.request.urlopen(f"{job.url}state.json"))


@contextlib.contextmanager
def browser(width: int, height: int, dark: bool) -> Iterator[Any]:
    """A headless Chromium."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = needs("chromium", "chromium")
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},{height}",
    ):
        options.add_argument(flag)
    if dark:
        options.add_argument("--force-dark-mode")
    driver = webdriver.Chrome(options, Service(needs("chromedriver", "chromium-driver")))
    try:
        yield driver
    finally:
        driver.quit()


class Shown:
    """In the place of a job's sight and of the launcher: three ranks on two hosts."""

    def __init__(self, links: list[LinkStatus]) -> None:
        self.links = links
        self.killed: list[int] = []

    def look(self) -> None:
        pass

    def read(self) -> JobStatus:
        return made_job(rank(0), rank(1, host="n1", here=False), rank(2, host="n1", here=False))

    def close(self) -> None:
        pass

    async def kill(self, number: int) -> str:
        self.killed.append(number)
        return "its host does not answer" if number == 2 else ""


@contextlib.contextmanager
def served(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serves a page without a job; yields its address."""
    monkeypatch.setattr(page_server, "Sight", lambda directory: shown)
    server = page_server.Server("token", shown, frozenset())  # type: ignore[arg-type]
    server.follow("directory")
    server.look()
    listener = socket.create_server(("127.0.0.1", 0))
    runner = web.AppRunner(server.application(), access_log=None)
    loop = asyncio.new_event_loop()

    async def start() -> None:
        await runner.setup()
        await web.SockSite(runner, listener).start()

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(HANG_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def texts(driver: Any, selector: str) -> list[str]:
    """Returns the texts of elements, all read at once: the page changes them while one reads."""
    script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)"
    found: list[str] = driver.execute_script(script, selector)
    return found


def may_click(driver: Any, rank: int) -> bool:
    """Returns whether a rank's button is there and enabled."""
    script = "return document.querySelector(arguments[0]) !== null"
    return bool(driver.execute_script(script, f"#kill-{rank}:enabled"))


def click(driver: Any, rank: int) -> None:
    """Clicks a rank's button, again where it was replaced or disabled meanwhile."""
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.common.by import By

    def clicked() -> bool:
        if not may_click(driver, rank):
            return False
        with contextlib.suppress(WebDriverException):
            driver.find_element(By.ID, f"kill-{rank}").click()
            return True
        return False

    until(clicked)


def severe(driver: Any) -> list[str]:
    """Returns the errors that the browser has met."""
    return [each["message"] for each in driver.get_log("browser") if each["level"] == "SEVERE"]


def test_links_are_shown_and_ranks_of_other_hosts_can_be_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from selenium.webdriver.common.by import By

    ways = {"source": "n0", "dest": "n1", "transfers": 7}
    links = [
        LinkStatus(**ways, kind="ring", state="open", stalled_seconds=0),
        LinkStatus(**ways, kind="mirror", state="stalled", stalled_seconds=4.5),
        LinkStatus(**ways, kind="gather", state="unknown", stalled_seconds=0),
    ]
    shown = Shown(links)
    with served(shown, monkeypatch) as url, browser(1100, 900, dark=False) as driver:
        driver.get(url)
        until(lambda: len(texts(driver, "#links tr")) == 4)
        text = "\n".join(texts(driver, "#links tr")).replace("\t", " ")
        assert text.index("op log, snapshots stalled for 4.5 s 7") < text.index("sums open 7")
        assert "gathered operations unknown: a host does not answer" in text
        driver.find_element(By.ID, "token").send_keys("token")
        for number, told in ((1, "the worker of rank 1 was killed"), (2, "does not answer")):
            click(driver, number)
            until(lambda told=told: told in texts(driver, "#told")[0])
        assert {1, 2} <= set(shown.killed)
        if picture := os.environ.get("STATUS_PAGE_LINKS_PICTURE"):
            driver.save_screenshot(picture)
        shown.links = []
        until(lambda: not driver.find_element(By.ID, "links-section").is_displayed())
        errors = severe(driver)
        assert len(errors) == 1 and "kill" in errors[0]  # the refusal


def test_a_click_that_lasts_while_the_page_is_refreshed_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    shown = Shown([])
    with served(shown, monkeypatch) as url, browser(1100, 900, dark=False) as driver:
        driver.get(url)
        driver.find_element(By.ID, "token").send_keys("token")
        until(lambda: may_click(driver, 1))
        ActionChains(driver).click_and_hold(driver.find_element(By.ID, "kill-1")).perform()
        count = "return performance.getEntriesByType('resource').length"
        before = driver.execute_script(count)
        until(lambda: driver.execute_script(count) > before + 2)
        ActionChains(driver).release().perform()
        until(lambda: "the worker of rank 1 was killed" in texts(driver, "#told")[0])


@pytest.mark.shows(later=True)
def test_the_button_kills_a_rank_and_the_page_shows_its_recovery(job: Job, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    with browser(1100, 900, dark=False) as driver:
        driver.get(job.url)

        def shows(state: str, restarts: str) -> bool:
            cells = texts(driver, "#ranks tr:nth-child(3) td")
            return bool(cells) and cells[2] == state and cells[7] == restarts

        def recovered() -> bool:
            text = texts(driver, "#recoveries")[0]
            return "signal 9" in text and "under way" not in text

        until(lambda: shows("running", "0"))
        assert not may_click(driver, 1)  # without the token
        driver.find_element(By.ID, "token").send_keys(job.token)
        click(driver, 1)
        until(lambda: "was killed" in texts(driver, "#told")[0])
        until(lambda: shows("running", "1"))
        until(recovered)
        classes = (
            "return [...document.querySelectorAll('rect')].map((each) => each.className.baseVal)"
        )
        assert {"running", "restarting", "waiting"} <= set(driver.execute_script(classes))
        assert severe(driver) == []
        picture = os.environ.get("STATUS_PAGE_PICTURE", str(tmp_path / "page.png"))
        assert driver.save_screenshot(picture)
    with browser(390, 800, dark=True) as driver:  # a telephone
        driver.get(job.url)
        until(lambda: len(texts(driver, "#ranks tr")) == 3)
        assert driver.execute_script("return document.body.scrollWidth <= window.innerWidth")


@pytest.mark.shows(later=True)
def test_prometheus_scrapes_the_job(job: Job, tmp_path: Path) -> None:
    program = needs("prometheus", "prometheus")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    target = urllib.parse.urlparse(job.url).netloc
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: training\n"
        f"  static_configs: [{{targets: ['{target}']}}]\n"
    )
    command = [program, f"--config.file={config}", f"--web.listen-address=127.0.0.1:{port}"]
    with subprocess.Popen(
        [*command, f"--storage.tsdb.path={tmp_path / 'data'}"], stderr=subprocess.DEVNULL
    ) as process:

        def value(query: str) -> float | None:
            words = urllib.parse.urlencode({"query": query})
            with contextlib.suppress(OSError):
                answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{words}")
                found = json.load(answer)["data"]["result"]
                return float(found[0]["value"][1]) if found else None
            return None

        try:
            until(lambda: (value("hvdft_job_step") or 0) > 2)
            assert value('up{job="training"}') == 1
            assert value("sum(hvdft_rank_restarts_total)") == 0
            assert value('hvdft_job_state{state="running"}') == 1
            for query in _queries():
                assert value(query) is not None, query
        finally:
            process.terminate()


def _queries() -> list[str]:
    """Returns the queries of the Grafana dashboard that an undisturbed job answers."""
    dashboard = json.loads((ROOT / "docs" / "how-to" / "grafana.json").read_text())
    queries = [
        target["expr"].replace("$job_id", ".*")
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    assert len(queries) > 5
    return [query for query in queries if not re.search("checkpoint|rate|increase|link", query)]
