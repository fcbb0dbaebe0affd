"""The commit of a checkout, and that of a wheel."""

import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from hvd_ft.system import commit


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


def test_of_a_branch_a_packed_one_a_detached_head_and_another_work_tree(checkout: Path) -> None:
    expected = git(checkout, "rev-parse", "HEAD")[:12]
    assert commit.of_checkout(checkout) == expected
    other = checkout.parent / "other"
    git(checkout, "worktree", "add", "-q", "-b", "side", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "two")
    assert commit.of_checkout(other) == git(other, "rev-parse", "HEAD")[:12] != expected
    git(checkout, "pack-refs", "--all")
    assert commit.of_checkout(checkout) == expected
    git(checkout, "checkout", "-q", "--detach")
    assert commit.of_checkout(checkout) == expected


def test_what_is_no_checkout_has_none(tmp_path: Path) -> None:
    assert commit.of_checkout(tmp_path) == ""
    (tmp_path / ".git").write_text("gitdir: /nowhere")
    assert commit.of_checkout(tmp_path) == ""


def test_a_wheel_has_it_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_PACKAGE", tmp_path)
    commit.commit.cache_clear()
    (tmp_path / "COMMIT").write_text("0123456789abcdef0123\n")
    assert commit.version_text("1.2.3") == "1.2.3 (commit 0123456789ab)"
    commit.commit.cache_clear()
    (tmp_path / "COMMIT").unlink()
    assert commit.version_text("1.2.3") == "1.2.3"  # neither
    commit.commit.cache_clear()


def test_this_one_is_known_in_a_checkout() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    assert commit.commit() == git(ROOT, "rev-parse", "HEAD")[:12]
