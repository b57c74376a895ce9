#!/bin/bash
# Runs one file of tests and reports its test cases to Bazel.
#
# usage: run_pytest.sh PYTHON FILE_test.py
set -euo pipefail
export PYTHONPATH=$PWD/bindings/python/package PYTHONDONTWRITEBYTECODE=1 TMPDIR=${TEST_TMPDIR:-/tmp}
exec "$1" -m pytest -q -p no:cacheprovider ${XML_OUTPUT_FILE:+--junitxml="$XML_OUTPUT_FILE"} "$2"
