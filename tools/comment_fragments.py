#!/usr/bin/env python3
"""comment_fragments.py [BASE]: finds comments that begin with a fragment, such as "Of each rank" or "Whether it ended".
A comment should name its subject: "Number of elements per rank", "Returns true if it has ended".

Without BASE all tracked files may have at most CEILING such lines. With BASE the lines that were added since that commit
may have none. A line that continues a sentence of the line above is not counted as added."""
import re
import subprocess
import sys

CEILING = 50
FRAGMENT = re.compile(r"^ *// (Of|Whether|What|Who|Than) ")
COMMENT = re.compile(r"^ *//")
SENTENCE_END = re.compile(r"[.:;!?)]$")
SOURCES = ["*.h", "*.cc", "*.c", "*.cu", "*.cuh", "*.inc", "*.in"]


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, errors="replace").stdout


def continues(line, above):
    """Returns true if the comment `line` continues the sentence of the line above."""
    return bool(COMMENT.match(above)) and above.strip() != "//" and not SENTENCE_END.search(above.rstrip())


def in_tree():
    """Returns "file:line: text" of each fragment in tracked files."""
    found = subprocess.run(["git", "grep", "-nE", FRAGMENT.pattern, "--", *SOURCES], capture_output=True, text=True)
    if found.returncode > 1:
        sys.exit(f"comment_fragments: {found.stderr.strip()}")
    return found.stdout.splitlines()


def added_since(base):
    """Returns "file:line: text" of each fragment in lines that were added since the commit `base`."""
    found = []
    file, number, above = "", 0, ""
    # A line of context, which the first added line may continue.
    for line in git("diff", "-M", "-U1", base, "--", *SOURCES).splitlines():
        if line.startswith("+++ "):
            file, above = line.removeprefix("+++ b/"), ""
        elif line.startswith("@@ "):
            number, above = int(re.search(r"\+(\d+)", line)[1]), ""
        elif line[:1] in ("+", " "):
            text = line[1:]
            if line[0] == "+" and FRAGMENT.match(text) and not continues(text, above):
                found.append(f"{file}:{number}:{text}")
            number, above = number + 1, text
    return found


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    base = sys.argv[1] if len(sys.argv) == 2 else None
    found = added_since(base) if base else in_tree()
    most = 0 if base else CEILING
    if len(found) > most:
        print("\n".join(found))
        where = f"added since {base}" if base else "in the tree"
        sys.exit(f"comment_fragments: {len(found)} comments {where} begin with a fragment, but at most {most} may; begin "
                 "each with the noun or the verb of its sentence")
    print(f"comment_fragments: {len(found)} of at most {most}")


if __name__ == "__main__":
    main()
