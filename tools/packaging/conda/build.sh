#!/bin/bash
# Unpacks the wheel into the package; run by rattler-build.
set -euo pipefail

packages=$PREFIX/lib/python$PY/site-packages
mkdir -p "$packages" "$PREFIX/bin"
python3 -m zipfile -e "$SRC_DIR"/tutti-*.whl "$packages"
chmod 755 "$packages/tutti/bin/tutti"
ln -s "../lib/python$PY/site-packages/tutti/bin/tutti" "$PREFIX/bin/tutti"
