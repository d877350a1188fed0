"""The program `crawlproj`: help by groups, commands that look without loading Scrapy, completion."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproj.console import GROUPS, load_command, own_commands, scrapy_commands
from crawlproj.errors import EXIT_NO_SEEDS, EXIT_OK, EXIT_USAGE

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
LOADS = """
import sys
from crawlproj.commandline import main
code = main(sys.argv[1:])
print(*sorted({"scrapy", "twisted"} & sys.modules.keys()), file=sys.stderr)
sys.exit(code)
"""
Typed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def typed(tmp_path: Path, empty_redis_url: str) -> Typed:
    """Runs `crawlproj` as a person would, in an empty directory."""

    def run(*words: str, start: tuple[str, ...] = ("-m", "crawlproj")) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SCRAPY_")}
        return subprocess.run(
            [sys.executable, *start, *words],
            cwd=tmp_path,
            env=kept | {"PYTHONPATH": str(PROJECT), "REDIS_URL": empty_redis_url},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_help_has_every_command_in_its_group(typed: Typed) -> None:
    done = typed("-h")

    groups = dict(re.findall(r"^(\w+):\n((?:  .*\n)+)", done.stdout, re.MULTILINE))
    assert done.returncode == EXIT_OK
    assert tuple(groups) == GROUPS
    listed = {line.split()[0]: group for group, lines in groups.items() for line in lines.splitlines()}
    assert listed == {name: load_command(name).group for name in own_commands()}
    assert [listed[name] for name in ("run", "status", "stop", "simweb")] == [*GROUPS]
    assert all(name in done.stdout for name in scrapy_commands())


@pytest.mark.parametrize(
    "words",
    [
        "-h",
        "status -h",
        "runs",
        "status",
        "pages",
        "report",
        "deadletters",
        "parked",
        "stop",
        "completion zsh",
    ],
)
def test_commands_that_only_look_do_without_scrapy(typed: Typed, words: str) -> None:
    done = typed(*words.split(), start=("-c", LOADS))

    assert done.stderr.splitlines()[-1:] in ([""], []), done.stderr


def test_a_run_is_shown_without_scrapy(typed: Typed) -> None:
    assert typed("seed", "--create", "http://a.example/").returncode == EXIT_OK

    shown = typed("status", start=("-c", LOADS))

    assert shown.stderr == "\n"
    assert shown.stdout.startswith("run web, created\n")


def test_what_scrapy_does_is_done_by_scrapy(typed: Typed) -> None:
    done = typed("settings", "--get", "SCHEDULER")

    assert (done.returncode, done.stdout) == (EXIT_OK, "crawlproj.scheduler.Scheduler\n")


def test_options_of_scrapys_work_on_every_command(typed: Typed, tmp_path: Path) -> None:
    done = typed("runs", "--pidfile", "pid", "--profile", "profile")

    assert (done.returncode, done.stdout) == (EXIT_OK, "no runs\n")
    assert {"pid", "profile"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("statsu", "crawlproj: 'statsu' is not a command. Did you mean status?"),
        ("--run web status", "crawlproj: '--run' is an option; the command comes first."),
        ("status --what", "crawlproj status: unknown argument '--what'; see: crawlproj status -h"),
        ("status -s CRAWL_RUN", "crawlproj status: error: argument -s/--set: CRAWL_RUN has no value"),
        ("seed", "crawlproj seed: Give a seeds file, URLs, or - for standard input; see: crawlproj seed -h"),
        ("crawl webb", "crawlproj: There is no spider 'webb'; there are: parser, web. Did you mean web?"),
        ("completion fish", "crawlproj completion: 'fish' is not a shell; give bash or zsh."),
    ],
)
def test_mistakes_are_answered_with_what_to_type_instead(typed: Typed, words: str, says: str) -> None:
    done = typed(*words.split())

    assert done.returncode in (EXIT_USAGE, EXIT_NO_SEEDS)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_modules_are_imported_is_no_traceback(typed: Typed) -> None:
    """A signal that arrives during an import, as Python raises it there."""
    interrupted = "import sys; from crawlproj.__main__ import run\n"
    interrupted += "class Late:\n  def find_spec(self, name, *_):\n    if name == 'crawlproj.console':"
    interrupted += " raise KeyboardInterrupt\nsys.meta_path.insert(0, Late()); sys.exit(run())"

    done = typed(start=("-c", interrupted))

    assert (done.returncode, done.stderr) == (130, "")


def test_a_project_whose_settings_are_missing_is_named(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")

    done = typed("runs")

    assert done.returncode == EXIT_USAGE
    assert done.stderr.startswith("crawlproj runs: The settings module 'shop.settings', named by scrapy.cfg")


def test_settings_of_the_project_of_this_directory_are_obeyed(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop\n")
    (tmp_path / "shop.py").write_text("REDIS_URL = None\nCRAWL_DATA = 'elsewhere'\n")
    (tmp_path / "below").mkdir()

    done = typed("-c", f"import os; os.chdir('below')\n{LOADS}", "runs", start=())

    assert done.stderr.startswith("crawlproj runs: There is no crawl in 'elsewhere'")


@pytest.mark.skipif(shutil.which("bash") is None, reason="only who has bash completes with it")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("crawlproj stat", {"status"}),
        ("crawlproj pau", {"pause"}),
        ("crawlproj shel", {"shell"}),
        ("crawlproj status --j", {"--json"}),
        ("crawlproj status --run ", {"news", "web"}),
        ("crawlproj runs --delete n", {"news"}),
        ("crawlproj pages --data other --run ", {"old"}),
    ],
)
def test_bash_completes_commands_options_and_runs(
    typed: Typed, tmp_path: Path, line: str, completed: set[str]
) -> None:
    for run in ("data/runs/news", "data/runs/web", "other/runs/old"):
        (tmp_path / run).mkdir(parents=True)
    words = line.split(" ")
    script = f"""
{typed("completion", "bash").stdout}
COMP_WORDS=({" ".join(word or '""' for word in words)}) COMP_CWORD={len(words) - 1}
_crawlproj
echo "${{COMPREPLY[@]}}"
"""

    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert set(done.stdout.split()) == completed


def test_zsh_is_given_every_command_and_option_with_its_meaning(typed: Typed) -> None:
    script = typed("completion", "zsh").stdout

    assert script.startswith("#compdef crawlproj\n")
    assert "'status:Show what a run is doing'" in script
    assert "'--json:print one JSON object'" in script
