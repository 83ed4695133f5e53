"""The command line: dispatch, exit codes, and one line for every error."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

from rematch.cli import command_list
from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.system import user_code
from rematch.core.system.gpu_errors import gpu_error, is_gpu_error
from rematch.core.system.interrupts import INTERRUPTS

LONGEST_LINE = 600  # characters of an error message
HELP = ("--help", "-h")
TRAINING = ("train", "resume", "sweep")  # commands that save checkpoints


def dispatch(words: Sequence[str]) -> int:
    """Run the command that the words name; returns the exit code."""
    from rematch.cli import help_text

    if not words:
        print(help_text.overview())
        return 0
    first = words[0].lower()
    if first in (*HELP, "help"):
        return print_help([*words[1:], "--help"] if len(words) > 1 else [])
    if first == "--version":
        from rematch import __version__

        print(f"rematch {__version__}")
        return 0
    if any(word in HELP for word in words[1:]):
        return print_help(words)
    command = command_list.find(words[0])
    if command.loads_api:
        load_api()
    return command.run(words[1:])


def load_api() -> None:
    """Load the compiled modules; a Ctrl-C that arrives meanwhile would be lost, so it is deferred."""
    with INTERRUPTS.deferred():
        importlib.import_module("rematch.api")


def print_help(words: Sequence[str]) -> int:
    """Help for a command; with RECIPE or WORLD for its settings, --help SECTION for some of them."""
    from rematch.cli import help_text, settings_help

    if not words:
        print(help_text.all_commands())
        return 0
    command = command_list.find(words[0])
    names, section = settings_help.split_help(words[1:])
    if command.settings_of and names:
        load_api()
        print(settings_help.text(command, names, section))
    else:
        print(help_text.command_help(command))
    return 0


def one_line(text: object) -> str:
    """The text after the name of the program, without control characters and at most LONGEST_LINE long."""
    line = "".join(c if c.isprintable() else " " for c in f"rematch: {text}")
    if len(line) > LONGEST_LINE:
        line = f"{line[:LONGEST_LINE - 105]} ... {line[-100:]}"
    return line


def print_error(text: object, code: int = 2) -> int:
    """Print the text as one line on stderr, without control characters; returns the exit code."""
    line = one_line(text)
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # stderr is closed too
            print(line, file=sys.stderr, flush=True)
    return code


def silence_stdout() -> None:
    """Send further output to /dev/null: its reader has ended, and Python's flush at exit would fail and
    change the exit code (docs.python.org, signal, "Note on SIGPIPE")."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def main(argv: Sequence[str] | None = None, act: Callable[[Sequence[str]], int] | None = None) -> int:
    """Run the command line; with `act`, call that with the words instead, as the programs in compat/ do.

    Both end with the same error lines and exit codes.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if user_code.FLAG in words:
        user_code.allow_everything()
        words = [word for word in words if word != user_code.FLAG]
    with INTERRUPTS:
        try:
            return run_safely(words, act or dispatch)
        except KeyboardInterrupt:
            pass
        except Exception:
            if not INTERRUPTS.received:  # otherwise a Ctrl-C caused this exception
                raise
        trains = act is not None or any(word in TRAINING for word in words[:1])
        saved = "; checkpoints that were saved are intact" if trains else ""
        code = print_error(f"interrupted{saved}", 130)
        if argv is None:
            end_with_threads(code)
        return code


def end_with_threads(code: int) -> None:
    """End this process if threads are left: Python would wait for them, and a pool that was interrupted while
    it started a thread never ends that thread."""
    if all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)


def format_warning(message: Warning | str, *_: object, **__: object) -> str:
    """A warning as one line, without the file and line number that issued it."""
    return f"{one_line(message)}\n"


def run_safely(words: Sequence[str], act: Callable[[Sequence[str]], int]) -> int:
    """Act on the words; an error is one line and exit code 2."""
    code = 0
    warnings.formatwarning = format_warning
    try:
        with user_code.one_line_errors():
            code = act(words)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # `| head`: the reader ended
        silence_stdout()
        return code
    except (ConfigError, ImportError) as error:  # ImportError: an outdated core, or a missing library
        INTERRUPTS.raise_if_received()
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":  # it is optional
            return print_error(NotInstalled("PyTorch, which these settings need,", "torch"))
        return print_error(error)
    except OSError as error:
        silence_stdout()
        file = f"{error.filename}: " if error.filename else "output: "
        return print_error(f"{file}{error.strerror or error}")
    except MemoryError:
        return print_error("not enough memory: expected fewer or smaller games, steps or network.hidden")
    except Exception as error:
        if not is_gpu_error(error):
            raise
        return print_error(gpu_error(error))


if __name__ == "__main__":
    sys.exit(main())
