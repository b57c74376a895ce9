#!/bin/bash
# Every command has a manual page with all its options; pages are checked for well-formedness if a
# program for that is installed.
#
# usage: man_test.sh MAN TUTTI
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

make_pages=$1 tutti=$2
pages=$(mktemp -d "${TEST_TMPDIR:-/tmp}/man.XXXXXX")
trap 'rm -rf "$pages"' EXIT
"$make_pages" "$tutti" "$pages"

# options_of FILE: --those, one a line, of --help or of a page.
options_of() {
  sed 's/\\-/-/g; s/\\f[BIR]//g' "$1" | grep -o -- '--[a-z][a-z0-9-]*' | sort -u
}

commands=0
while read -r command; do
  page=$pages/tutti-$command.1
  [ -s "$page" ] || fail "there is no page of tutti $command"
  "$tutti" "$command" --help >"$pages/help.txt"
  missing=$(comm -23 <(options_of "$pages/help.txt") <(options_of "$page"))
  [ -z "$missing" ] || fail "the page of tutti $command lacks $missing"
  grep -q "^\.SH EXAMPLE" "$page" || fail "the page of tutti $command has no example"
  grep -q "tutti\\\\-$command" "$pages/tutti.1" || fail "the main page does not name tutti-$command"
  commands=$((commands + 1))
done < <("$tutti" --help | awk '/^Subcommands:/ {listed = 1; next} /^$/ {listed = 0} listed {print $1}')
[ "$commands" -gt 10 ] || fail "only $commands commands were found"

if command -v groff >/dev/null; then
  for page in "$pages"/*.1; do
    said=$(groff -man -Tutf8 -Kutf8 -ww -z "$page" 2>&1 | grep -v 'cannot adjust line' || true)
    [ -z "$said" ] || fail "$page: $said"
  done
fi
echo "$commands commands have their pages"
