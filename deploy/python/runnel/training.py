"""runnel.fit: a torch module, trained across devices."""

import dataclasses
import json
import pathlib
import shutil
import tempfile

import numpy as np

from . import modules, programs
from .cluster import Cluster
from .errors import InputError


@dataclasses.dataclass
class Run:
    """What a training gave. `history`: a dict a step or evaluation, as `runnel-central train --log`; `summary`: its --summary."""

    accuracy: float  # None where nothing was evaluated
    history: list = dataclasses.field(repr=False)
    summary: dict = dataclasses.field(repr=False)
    folder: pathlib.Path = None

    @property
    def weights_sha256(self):
        return self.summary["weights_sha256"]

    def predict(self, x):
        """The trained weights' outputs for samples `x` (N, ...), as float32 (N, classes), by `runnel-central predict`.

        Where each position has a label: of what follows the sample's last token.
        Needs the folder of `fit(..., folder=...)`. Raises InputError for samples of another shape.
        """
        if self.folder is None:
            raise InputError("predict needs what fit keeps in a folder: fit(..., folder=...)")
        x = np.ascontiguousarray(_array(x, "x"), dtype=np.float32)
        with tempfile.TemporaryDirectory(prefix="runnel-") as place:
            samples, outputs = pathlib.Path(place) / "samples.npy", pathlib.Path(place) / "outputs.npy"
            np.save(samples, x)
            programs.run(["predict", "--checkpoint-dir", str(self.folder / "checkpoints"), "--data", f"npy:{samples}", "--out", str(outputs)])
            return np.load(outputs)


def _array(values, what):
    """A NumPy array of numbers, also of what a .npy file has."""
    try:
        if isinstance(values, (str, pathlib.Path)):
            array = np.load(values, mmap_mode="r")
        elif hasattr(values, "detach"):
            values = values.detach().cpu()
            array = (values.float() if values.is_floating_point() else values).numpy()
        else:
            array = np.asarray(values)
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"{what} is no array of numbers: {' '.join(str(error).split())}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf" or array.size == 0 or array.ndim == 0:
        kind = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise InputError(f"{what} is no array of numbers with one row a sample: {kind}")
    return array


def _write(folder, name, samples, labels, kind):
    """Two .npy files, samples of this type, and their part of --data."""
    paths = []
    for suffix, values, kind in (("samples", samples, kind), ("labels", labels, np.int64)):
        path = folder / f"{name}_{suffix}.npy"
        np.save(path, np.ascontiguousarray(values, dtype=kind))
        paths.append(str(path))
    return paths


def _check(x, y, what, by_position=False):
    if len(x) != len(y):
        raise InputError(f"{what}: {len(x)} samples and {len(y)} labels")
    if y.ndim == 2 and not (by_position and y.shape == x.shape):
        raise InputError(f"{what}: labels are one integer a sample, and y is {y.shape}; " +
                         ("y.reshape(-1) is that" if y.shape[1] == 1 else "of a row with a 1 for the class y.argmax(1) is that"))
    if not np.array_equal(y, np.floor(y)) or not (y.ndim == 1 or (by_position and y.shape == x.shape)):
        raise InputError(f"{what}: labels are one integer a sample" + (", or one a position" if by_position else ""))


def _data(folder, x, y, validation, module):
    """Writes the arrays; returns (--data, what modules.export is told of them)."""
    x, y = _array(x, "x"), _array(y, "y")
    tokens = modules.tokens_of(module, x.shape[1:]) if np.issubdtype(x.dtype, np.integer) else 0
    _check(x, y, "x and y", tokens > 0)
    by_position = y.ndim > 1
    classes = tokens if by_position else int(y.max()) + 1
    if not by_position and not np.array_equal(np.unique(y), np.arange(classes)):
        raise InputError(f"labels must be all of 0 to {classes - 1}; {len(np.unique(y))} different ones are there")
    kind = np.int32 if tokens else np.float32
    text = "npy:" + ",".join(_write(folder, "train", x, y, kind))
    if validation is not None:
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise InputError("validation is a pair (x, y)")
        xv, yv = _array(validation[0], "validation"), _array(validation[1], "validation")
        _check(xv, yv, "validation", tokens > 0)
        if yv.max() >= classes or yv.min() < 0:
            raise InputError(f"validation: labels are {yv.min():g} to {yv.max():g}, those of the training 0 to {classes - 1}")
        text += ",test=" + ";".join(_write(folder, "validation", xv, yv, kind))
    text += f",tokens={tokens}" if tokens else ",scale=off"
    return text, {"sample_shape": x.shape[1:], "classes": classes, "tokens": tokens, "by_position": by_position}


def _free(folder):
    try:
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty: name another folder")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"folder {folder}: {error.strerror}") from error


# Flags of `runnel-central train` that fit gives, and what to say in their place.
_OWN = {"model": "the first argument", "data": "x and y", "dataset": "x and y", "data_dir": "x and y", "local_workers": "workers=N",
        "log": "Run.history; folder=... keeps log.jsonl", "summary": "Run.summary; folder=... keeps summary.json",
        "checkpoint_dir": "folder=...", "seeds": "a call with seed=N for each"}


def _check_settings(module, settings):
    for name in settings:
        if name in _OWN:
            raise InputError(f"{name} is not for fit: {_OWN[name]}")
    frozen = modules.frozen(module)
    if frozen and "freeze" not in str(settings.get("rewrite")):
        raise InputError(f"{modules.listed(frozen)}: requires_grad is False, and fit would train them; rewrite=\"freeze:N\" freezes the first "
                         "N layers (runnel-central plan shows them), requires_grad_() lets all train")


def fit(module, x, y, *, validation=None, workers=3, cluster=None, folder=None, progress=True, **settings):
    """Trains `module` in place on samples `x` (N, ...) and class labels `y` (N), and returns a Run.

    x, y        arrays of NumPy, tensors, or paths of .npy files. The module gets samples as they are here, in float32; integers, if
                an nn.Embedding of the module reads them, as tokens (N, positions), with labels (N) or, tokens too, (N, positions).
    validation  (x, y) of the test; None: one sample in five of each class, by the seed.
    workers     worker processes on this host; 0: one process without a pipeline.
    cluster     a runnel.Cluster in place of local workers.
    folder      keeps check-points, log, summary and data there; None: nothing is kept.
    settings    any flag of `runnel-central train`: epochs=5, batch_size=64, lr=.05, optimizer="adamw", recipe="bf16", quick=True.

    Raises InputError (also a ValueError) for wrong input, RunnelError if the run fails; the module is then as it was.
    """
    modules.check(module)
    if cluster is not None and not isinstance(cluster, Cluster):
        raise InputError(f"cluster is a {type(cluster).__name__}, not a runnel.Cluster")
    _check_settings(module, settings)
    own = folder is None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runnel-")) if own else pathlib.Path(folder).resolve()
    if not own:
        _free(folder)
    try:
        data, facts = _data(folder, x, y, validation, module)
        onnx, operators = modules.export(module, **facts)
        model = folder / "module.onnx"
        model.write_bytes(onnx)
        places = cluster.flags() if cluster is not None else {"local_workers": workers}
        files = {"checkpoint_dir": folder / "checkpoints", "log": folder / "log.jsonl", "summary": folder / "summary.json"}
        programs.run(["train", *programs.flags_of({"model": f"onnx:{model}", "data": data, **places, **files, **settings})], progress)
        archive = folder / "weights.npz"
        programs.run(["export", "--checkpoint-dir", str(files["checkpoint_dir"]), "--npz", str(archive)])
        modules.load(module, operators, archive)
        summary = json.loads(files["summary"].read_text())
        history = [json.loads(line) for line in files["log"].read_text().splitlines()]
        return Run(summary["accuracy"], history, summary, None if own else folder)
    finally:
        if own:
            shutil.rmtree(folder, ignore_errors=True)
