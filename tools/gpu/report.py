"""Writes the report of tools/gpu_check as Markdown and JSON: which checks passed, failed or were skipped, and tables."""

import json
import os
import signal
import subprocess
import time


class Report:
    def __init__(self, options):
        """`options` are those of the command line."""
        self.options = options
        self.folder = options.report
        self.started = time.monotonic()
        self.section = ""
        self.lines = ["# Tutti on this machine's GPUs", ""]
        self.results = []
        self.values = {}
        os.makedirs(self.folder, exist_ok=True)

    def left(self):
        return self.options.limit - (time.monotonic() - self.started)

    def begin(self, title):
        self.section = title
        self.lines += ["", f"## {title}", ""]
        print(f"== {title} ({self.left():.0f} s left)", flush=True)

    def say(self, text):
        self.lines.append(text)
        print(text, flush=True)

    def table(self, header, rows):
        self.say("")
        self.say("| " + " | ".join(header) + " |")
        self.say("|" + "---|" * len(header))
        for row in rows:
            self.say("| " + " | ".join(str(cell) for cell in row) + " |")
        self.say("")

    def value(self, name, value):
        self.values[name] = value

    def result(self, name, outcome, seconds=0.0, detail=""):
        """Adds the outcome of a check: "passed", "failed" or "skipped"."""
        self.results.append(
            {"section": self.section, "name": name, "outcome": outcome, "seconds": round(seconds, 2), "detail": detail}
        )
        mark = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}[outcome]
        self.say(f"- {mark}: {name} ({seconds:.1f} s)" + (f": {detail}" if outcome == "skipped" and detail else ""))
        if outcome == "failed" and detail:
            self.say("\n```\n" + detail.strip()[-2500:] + "\n```\n")

    def run(self, name, command, environment, timeout):
        """Runs a command, and returns (exit code, output, seconds). If the command is ended at its time
        limit, the exit code is None. If no time is left, skips the command and returns (None, "", 0)."""
        timeout = min(timeout * self.options.patience, self.left())
        if timeout < 2:
            self.result(name, "skipped", 0, "no time left; see --limit")
            return None, "", 0
        begun = time.monotonic()
        code, output = _run(command, environment, timeout)
        return code, output, time.monotonic() - begun

    def check(self, name, command, environment, timeout):
        """Runs a command that passes with exit code 0. Returns its output, or None if it failed."""
        before = len(self.results)
        code, output, seconds = self.run(name, command, environment, timeout)
        if len(self.results) > before:
            return None
        if code == 0:
            self.result(name, "passed", seconds)
            return output
        why = f"ended after {seconds:.0f} s without an answer" if code is None else f"exit code {code}"
        self.result(name, "failed", seconds, f"{why}\n{output}")
        return None

    def finish(self):
        counts = {outcome: 0 for outcome in ("passed", "failed", "skipped")}
        for result in self.results:
            counts[result["outcome"]] += 1
        summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        self.lines[1:1] = ["", f"{summary} in {time.monotonic() - self.started:.0f} s"]
        with open(os.path.join(self.folder, "report.md"), "w", encoding="utf-8") as file:
            file.write("\n".join(self.lines) + "\n")
        with open(os.path.join(self.folder, "report.json"), "w", encoding="utf-8") as file:
            json.dump({"counts": counts, "values": self.values, "results": self.results}, file, indent=1)
        for result in self.results:
            if result["outcome"] == "failed":
                print(f"FAILED: {result['section']}: {result['name']}")
        print(f"report: {os.path.join(self.folder, 'report.md')}")
        print(summary)
        return 1 if counts["failed"] else 0


def _run(command, environment, timeout):
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output.decode(errors="replace")
