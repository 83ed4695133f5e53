"""The child process of a job: reads one request from its input, writes one JSON object to its output."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import warnings

from rematch.core.errors import ConfigError
from rematch.core.system import user_code


def end_with_the_server() -> None:
    """End as soon as the server closes our input, also where it was killed."""
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    from rematch.web.run_jobs import JOBS
    from rematch.web.worlds import PAGES

    user_code.allow_everything(user_code.FLAG in sys.argv)
    warnings.simplefilter("ignore")
    with contextlib.suppress(OSError):
        os.nice(19)
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_the_server, daemon=True).start()
    jobs = {page.world: page.jobs for page in PAGES} | {"": JOBS}
    job = jobs[asked["world"]][asked["job"]]
    try:
        answer = {"result": job(asked["request"], progress)}
    except (ConfigError, ImportError) as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": "not enough memory"}
    sys.stdout.write(json.dumps(answer, allow_nan=False))
    sys.stdout.flush()
    os._exit(0)


def progress(text: str) -> None:
    """Show a line while the job works."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
