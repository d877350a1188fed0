"""``crawlproj completion``: commands, options and names of runs, completed by the shell."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping

from crawlproj.console import ConsoleCommand, load_command, own_commands, parser_of, scrapy_commands
from crawlproj.errors import EXIT_OK, BadArgument

#: Options that take the name of a run.
_RUN_OPTIONS = "--run|--delete"
#: Names of runs are those of directories, so that nothing is started to complete one.
_BASH = """\
_crawlproj() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} data=${{CRAWL_DATA:-data}} words= i
  COMPREPLY=()
  for ((i = 2; i < COMP_CWORD; i++)); do
    [[ ${{COMP_WORDS[i]}} == --data ]] && data=${{COMP_WORDS[i + 1]}}
  done
  if ((COMP_CWORD == 1)); then
    words={commands}
  elif [[ ${{COMP_WORDS[COMP_CWORD - 1]}} =~ ^({run_options})$ ]]; then
    words=$(ls -- "$data/runs" 2> /dev/null)
  elif [[ $word == -* ]]; then
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _crawlproj crawlproj
"""
_ZSH = """\
#compdef crawlproj
_crawlproj() {{
  local data=${{CRAWL_DATA:-data}} i
  local -a found
  for ((i = 3; i < CURRENT; i++)); do
    [[ $words[i] == --data ]] && data=$words[i+1]
  done
  if ((CURRENT == 2)); then
    found=({commands})
    _describe command found
  elif [[ $words[CURRENT-1] == ({run_options}) ]]; then
    found=($data/runs/*(/N:t))
    compadd -a found
  elif [[ $words[CURRENT] == -* ]]; then
    case $words[2] in
{cases}
    esac
    _describe option found
  else
    _files
  fi
}}
compdef _crawlproj crawlproj
"""


class Command(ConsoleCommand):
    group = "develop"
    arguments = "[options] bash|zsh"
    summary = "Print completion for bash or zsh"
    takes_arguments = True
    examples = """\
  echo 'source <(crawlproj completion bash)' >> ~/.bashrc
  echo 'source <(crawlproj completion zsh)' >> ~/.zshrc     after compinit"""

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        if args == ["bash"]:
            print(bash_script())
        elif args == ["zsh"]:
            print(zsh_script())
        else:
            raise BadArgument(f"{' '.join(args)!r} is not a shell; give bash or zsh.")
        return EXIT_OK


def bash_script() -> str:
    cases = [f"      {name}) words={_quoted(options)} ;;" for name, options in _options().items()]
    commands = _quoted([*own_commands(), *scrapy_commands()])
    return _BASH.format(commands=commands, run_options=_RUN_OPTIONS, cases="\n".join(cases))


def zsh_script() -> str:
    cases = [f"      {name}) found=({_described(options)}) ;;" for name, options in _options().items()]
    commands = {name: load_command(name).summary for name in own_commands()}
    commands |= dict.fromkeys(scrapy_commands(), "by Scrapy")
    return _ZSH.format(commands=_described(commands), run_options=_RUN_OPTIONS, cases="\n".join(cases))


def _options() -> dict[str, dict[str, str]]:
    """Return the options of each command, with their help."""
    return {
        name: {
            option: action.help or ""
            for action in parser_of(load_command(name))._actions
            for option in action.option_strings
            if option.startswith("--")
        }
        for name in own_commands()
    }


def _quoted(words: Mapping[str, str] | list[str]) -> str:
    return shlex.quote(" ".join(words))


def _described(words: Mapping[str, str]) -> str:
    """Return words for zsh's `_describe`, which wants NAME:TEXT."""
    return " ".join(shlex.quote(f"{word}:{text}") for word, text in words.items())
