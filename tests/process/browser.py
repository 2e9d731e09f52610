"""Headless Chromium by its debugging pipe: a page at a time, no package beside Debian's `chromium`."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

# Of each visible text: its contrast with what is behind it, as WCAG 2 defines it. The texts below 4.5.
LOW_CONTRAST = """
(() => {
  const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), node = walker.currentNode.parentElement;
    if (!text || !node.getClientRects().length || ["SCRIPT", "TITLE", "title"].includes(node.tagName)) continue;
    const style = getComputedStyle(node), color = parse(node.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [light(color), light(behind(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${text.slice(0, 40)}: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return found;
})()"""


def find_chromium():
    return shutil.which("chromium")


class Browser:
    def __init__(self, program, *flags):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # The browser reads at descriptor 3 and writes at 4, which a shell gives it, whatever numbers the pipes have.
        self._process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "sh", program, "--headless=new", "--no-sandbox",
             "--disable-gpu", "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--hide-scrollbars", f"--user-data-dir={self._folder.name}", *flags, "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._id = 0
        self._session = None
        self.errors = []  # of the console, and exceptions
        self.requests = []  # addresses
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def _receive(self):
        while b"\0" not in self._buffer:
            piece = os.read(self._from, 1 << 16)
            if not piece:
                raise EOFError("the browser has ended")
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def call(self, method, **params):
        self._id += 1
        message = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != self._id:
                self._note(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:500])
        return result["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def wait_for(self, expression, patience_s=30):
        """Seconds until the expression held; TimeoutError."""
        begin = time.monotonic()
        while time.monotonic() - begin < patience_s:
            if self.evaluate(expression):
                return time.monotonic() - begin
            time.sleep(0.05)
        raise TimeoutError(f"not so after {patience_s} s: {expression}\n{self.evaluate('document.body.innerText')}")

    def show_as(self, width, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path, clip=None):
        """clip: x, y, width, height and scale; None: all."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, **({"clip": clip} if clip else {}))["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        for descriptor in (self._to, self._from):
            os.close(descriptor)
        self._process.terminate()
        self._process.wait(20)
        self._folder.cleanup()
