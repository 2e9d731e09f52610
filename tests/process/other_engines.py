"""Engines that are not ours and run a file of ONNX: OpenCV's DNN, and ONNX Runtime from npm, native and as WebAssembly.

An engine says what it lacks in one line (missing), or gives the outputs (N, classes) of samples (N, ...) in float32.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np

os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")  # it prints whole graphs
try:
    import cv2
except ImportError:  # Debian's python3-opencv
    cv2 = None

INSTALL = "npm i --ignore-scripts onnxruntime-node onnxruntime-web"
# Arguments: folder of npm, package, model, shape of the samples, their type, their file, the outputs' file.
RUN = """
const fs = require('fs');
const [folder, name, model, shape, type, samples, outputs] = process.argv.slice(1);
const ort = require(require.resolve(name, {paths: [folder]}));
(async () => {
  const session = await ort.InferenceSession.create(fs.readFileSync(model));
  const bytes = fs.readFileSync(samples);
  const Numbers = {float32: Float32Array, int64: BigInt64Array}[type];
  const values = new Numbers(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  const input = new ort.Tensor(type, values, JSON.parse(shape));
  const result = (await session.run({[session.inputNames[0]]: input}))[session.outputNames[0]];
  fs.writeFileSync(outputs, new Uint8Array(result.data.buffer, result.data.byteOffset, result.data.byteLength));
  process.exit(0);
})().catch(error => { console.error(String(error).split('\\n')[0]); process.exit(1); });
"""
# An open dimension of our files, "batch", as protobuf writes it: Dimension{dim_param}.
OPEN_BATCH = b"\x0a\x07\x12\x05batch"


class EngineError(Exception):
    """An engine refuses a file or its samples."""


def with_batch(model, batch):
    """The bytes of one of our files with a number in place of "batch". A varint may be padded, so no length changes."""
    digits = [batch >> 7 * at & 0x7f | 0x80 for at in range(6)]
    digits[-1] &= 0x7f
    return model.replace(OPEN_BATCH, b"\x0a\x07\x08" + bytes(digits))


class OpenCv:
    name = "OpenCV"

    def missing(self):
        return None if cv2 else "OpenCV is not installed: apt install python3-opencv"

    def version(self):
        return f"OpenCV {cv2.__version__}"

    def outputs(self, model, samples):
        """Also whether the file was read as it is: OpenCV 4.6 has no products of a channel's factor with an open batch."""
        bytes_ = pathlib.Path(model).read_bytes()
        try:
            return self._run(bytes_, samples), True
        except cv2.error:
            pass
        try:
            return self._run(with_batch(bytes_, len(samples)), samples), False
        except cv2.error as error:
            raise EngineError(" ".join(str(error).split())) from error

    def _run(self, bytes_, samples):
        net = cv2.dnn.readNetFromONNX(np.frombuffer(bytes_, np.uint8))
        net.setInput(samples)
        return net.forward()


class OnnxRuntime:
    """package: onnxruntime-node or onnxruntime-web. folder: where npm installed it."""

    def __init__(self, name, package, folder):
        self.name, self._package, self._folder = name, package, folder

    def missing(self):
        if not shutil.which("node"):
            return f"{self.name} needs node: apt install nodejs npm"
        if self._folder is None or not (self._folder / "node_modules" / self._package).is_dir():
            return f"{self.name} is not installed: {INSTALL}, then --npm FOLDER"
        return None

    def version(self):
        path = self._folder / "node_modules" / self._package / "package.json"
        return f"{self._package} {json.loads(path.read_text())['version']}"

    def outputs(self, model, samples):
        """Integers are tokens."""
        kind = "int64" if np.issubdtype(samples.dtype, np.integer) else "float32"
        with tempfile.TemporaryDirectory() as folder:
            given, got = pathlib.Path(folder) / "samples", pathlib.Path(folder) / "outputs"
            given.write_bytes(np.ascontiguousarray(samples, kind).tobytes())
            done = subprocess.run(["node", "-e", RUN, str(self._folder), self._package, str(model), str(list(samples.shape)), kind,
                                   str(given), str(got)], capture_output=True, text=True)
            if done.returncode != 0:
                raise EngineError(done.stderr.strip())
            return np.frombuffer(got.read_bytes(), np.float32).reshape(len(samples), -1), True


def engines(npm):
    """All of them. npm: folder in which INSTALL was run, or None."""
    folder = None if npm is None else pathlib.Path(npm).resolve()
    return [OpenCv(), OnnxRuntime("ONNX Runtime", "onnxruntime-node", folder),
            OnnxRuntime("ONNX Runtime (WebAssembly)", "onnxruntime-web", folder)]
