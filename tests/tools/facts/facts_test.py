#!/usr/bin/env python3
"""How figures of facts are compared, and which facts there are: facts_test.py FACT.PY"""
import importlib
import pathlib
import sys
import tempfile


def main():
    folder = pathlib.Path(sys.argv[1]).resolve().parent
    sys.path.insert(0, str(folder))
    fact = importlib.import_module("fact")

    exact = fact.Figure("messages", "", None, want=56)
    assert exact.is_right(56) and not exact.is_right(57)
    assert exact.distance(56) == "equal" and exact.distance(57) == "+1.8%", exact.distance(57)
    near = fact.Figure("GB", "", None, want=1.9, within=0.015)
    assert near.is_right(1.88) and not near.is_right(1.8)
    zero = fact.Figure("wrong values", "", None, want=0)
    assert zero.is_right(0) and not zero.is_right(1) and zero.distance(2) == "off by 2"
    bounded = fact.Figure("gain", "", None, least=1, most=2)
    assert bounded.is_right(1.5) and not bounded.is_right(0.9) and not bounded.is_right(2.1)
    assert bounded.distance(1.5) == "at least 1, at most 2"

    with tempfile.TemporaryDirectory() as place:
        text = pathlib.Path(place) / "words"
        text.write_text("a text")
        runner = fact.Runner(text)
        out = runner.run("cat text; echo; echo 'loss 2.5'; echo '{\"loss\": 1}' > run.jsonl")
        assert out.number(r"^loss ([\d.]+)") == 2.5 and "a text" in out.text
        assert out.losses("run.jsonl") == [1]
        assert runner.run("cat text; echo; echo 'loss 2.5'; echo '{\"loss\": 1}' > run.jsonl") is out, "each command runs once"
        for failing in ("exit 3", "false; true"):
            try:
                runner.run(failing)
            except ValueError:
                continue
            raise AssertionError(f"{failing} did not fail")
    assert fact.largest_difference([1.0, 2.2], [1.0, 2.0]) - 0.1 < 1e-12

    names = set()
    for module in ("communication", "data_parallelism", "memory", "model_parallelism", "planning", "beyond"):
        for one in importlib.import_module(module).FACTS:
            assert one.what not in names, f"two facts are named {one.what}"
            names.add(one.what)
            assert one.state.startswith(("shown", "partly: ", "absent: ")), one.state
            assert one.figures or one.state != "shown", f"{one.what} is shown by nothing"
    assert len(names) >= 42, len(names)


if __name__ == "__main__":
    main()
