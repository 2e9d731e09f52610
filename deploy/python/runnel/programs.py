"""runnel-central as a child process: where it is, what it prints, how it ends."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

from .errors import InputError, RunnelError


def find(name):
    """The program's path: in $RUNNEL_BIN, on PATH, or in the build of the source tree that this package lies in."""
    folder = os.environ.get("RUNNEL_BIN")
    if folder:
        path = pathlib.Path(folder) / name
        if not os.access(path, os.X_OK):
            raise InputError(f"RUNNEL_BIN={folder} has no {name}")
        return str(path)
    found = shutil.which(name)
    if found:
        return found
    build = pathlib.Path(__file__).resolve().parents[3] / "build" / "release" / "bin" / name
    if os.access(build, os.X_OK):
        return str(build)
    raise InputError(f"{name} is not on PATH: install the package runnel-central, or set RUNNEL_BIN to the folder of the programs")


def flags_of(settings):
    """{"batch_size": 64, "augment": ["crop", "flip"], "quick": True} as flags; None and False are left out."""
    words = []
    for name, value in settings.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is True:
            continue
        words.append(",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    return words


def _raise_failure(code, lines):
    """The program's last line that says why, without its name."""
    name = "runnel-central: "
    line = next((line for line in reversed(lines) if line.startswith(name)), lines[-1] if lines else f"exit code {code}")
    message = line.removeprefix(name)
    if code == 2:
        raise InputError(message)
    raise RunnelError(message, code)


def _with_parent():
    """The words before a command that is told to stop when who started it has been killed, as by a notebook's "restart"."""
    program = shutil.which("setpriv") if sys.platform == "linux" else None
    return [program, "--pdeathsig", "TERM"] if program else []


def _forward(stream, lines, show):
    """Keeps the last lines of a child's stream and shows each one as it comes."""
    for line in stream:
        line = line.rstrip("\n")
        if line:
            lines.append(line)
            del lines[:-50]
        if show:
            print(line, file=show, flush=True)


def run(arguments, progress=False):
    """Runs runnel-central to its end and returns what it printed to its output. Raises RunnelError, InputError.

    On a terminal, progress is the program's own; else (a notebook, a log) its lines. Ctrl-C stops training at once and raises
    KeyboardInterrupt when the program has ended.
    """
    # A notebook's output has no descriptor that a child could write to.
    terminal = bool(progress) and sys.stderr is sys.__stderr__ and sys.stderr.isatty()
    lines = []
    with subprocess.Popen([*_with_parent(), find("runnel-central"), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=not terminal) as child:
        output = []
        # Its errors are short lines on both: kept for the exception, shown once.
        readers = [threading.Thread(target=_forward, args=(child.stderr, lines, sys.stderr if progress else None), daemon=True),
                   threading.Thread(target=_forward, args=(child.stdout, output, sys.stdout if progress else None), daemon=True)]
        for reader in readers:
            reader.start()
        try:
            code = child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            child.wait()
            raise
        finally:
            for reader in readers:
                reader.join()
    if code != 0:
        _raise_failure(code, lines)
    return "\n".join(output)
