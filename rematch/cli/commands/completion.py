"""rematch completion: the script that makes a shell complete commands, names and settings."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.command import Command
from rematch.cli.options import Options
from rematch.core.config import known_name
from rematch.core.errors import ConfigError

# The scripts call `rematch complete SHELL WORD...`; the last WORD is the one under the cursor. They offer the
# lines that it prints; without lines, file names. bash splits a word at "=", and `complete` joins it.
BASH = r"""# rematch: completion for bash
_rematch() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <("$1" complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -F _rematch rematch
"""
ZSH = r"""#compdef rematch
_rematch() {
    local -a lines
    lines=("${(@f)$("${words[1]}" complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    lines=("${(@)lines:#}")
    if (( ${#lines} )); then
        _describe 'rematch' lines
    else
        _files
    fi
}
compdef _rematch rematch
"""
FISH = r"""# rematch: completion for fish
function __rematch_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] complete fish $words[2..-1] 2>/dev/null
end
complete -c rematch -a '(__rematch_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def run(words: Sequence[str]) -> int:
    options = Options.of(COMMAND, words)
    (word,) = options.positional(1, COMMAND.usage[0])
    shell = known_name(word, SCRIPTS)
    if shell not in SCRIPTS:
        raise ConfigError(f"completion {word!r}: expected one of {', '.join(SCRIPTS)}")
    print(SCRIPTS[shell], end="")
    return 0


COMMAND = Command(
    name="completion",
    group="tools",
    summary="print a script that lets the shell complete commands, names and settings",
    usage=("rematch completion bash|zsh|fish",),
    run=run,
    details="The Tab key then completes commands, options, recipes, worlds, runs, settings and their values.",
    examples=(
        ('eval "$(rematch completion bash)"', "in this shell; the same line in ~/.bashrc for every new one"),
        ('eval "$(rematch completion zsh)"', "the same for zsh, in ~/.zshrc after compinit"),
        ("rematch completion fish > ~/.config/fish/completions/rematch.fish", "for every new fish"),
    ),
    arguments=("|".join(SCRIPTS),),
    loads_api=False,
)
