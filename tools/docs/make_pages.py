"""make_pages.py FOLDER: what MkDocs builds the documentation from: FOLDER/mkdocs.yml, and FOLDER/pages with the pages of
tools/docs/pages and with what the program and the tree say themselves. Run by tools/site, with the program in the PATH, by
a Python that can import tutti.

A line `%run COMMAND` in a page becomes the command with what it prints, run here and now; it must succeed. `%fails COMMAND`
must fail, `%tries COMMAND` may do either. So the documentation shows nothing that the program does not do.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import c_reference
import python_reference

TREE = pathlib.Path(__file__).resolve().parents[2]
PAGES = TREE / "tools/docs/pages"
COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan",
               "exscan", "barrier"]
GUIDES = ["two_hosts", "clusters", "tuning", "algorithms", "hang", "lifetimes", "own_algorithm", "own_model"]
LONGEST = 60  # maximum lines of output shown


def shell(command):
    """Runs a command as a reader would, with the program in PATH."""
    return subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=TREE,
                          timeout=120)


def shown(command, how="run"):
    done = shell(command)
    if how != "tries" and (done.returncode != 0) != (how == "fails"):
        sys.exit(f"make_pages: '{command}' ended with exit code {done.returncode}:\n{done.stdout}")
    lines = done.stdout.rstrip().replace(f"{TREE}/", "").splitlines()
    if len(lines) > LONGEST:
        lines = lines[:LONGEST] + [f"... {len(lines) - LONGEST} lines more"]
    # Tables keep their lines; the long ones of errors are folded (pages/style.css).
    return "\n".join(["```text" if how == "fails" else "```console", f"$ {command}", *lines, "```"])


def with_output(text):
    return re.sub(r"^%(run|fails|tries) (.*)$", lambda match: shown(match[2], match[1]), text, flags=re.M)


def commands():
    listed = re.search(r"^Subcommands:\n((?:  .*\n)+)", shell("tutti --help").stdout, re.M)[1]
    return re.findall(r"^  ([a-z]+)", listed, re.M)


def settings_page():
    """Page of settings, from the output of `tutti info`."""
    listed = shell("env -i PATH=\"$PATH\" tutti info").stdout.split("Settings (environment variables)\n")[1]
    rows = re.findall(r"^  (TUTTI_\w+) = (.*?)  \[default\]\n      (.*)$", listed, re.M)
    out = ["# Settings", "", "Environment variables, as `tutti info` lists them with their values and where those came from.", "",
           "| setting | default | meaning |", "|---|---|---|"]
    out += [f"| `{name}` | {default.strip('()') if default == '(empty)' else f'`{default}`'} | {cell(meaning)} |"
            for name, default, meaning in rows]
    if len(rows) < 10:
        sys.exit("make_pages: tutti info lists its settings in another way than before")
    return "\n".join(out) + "\n"


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def catalogue_page():
    out = ["# All algorithms", "", "What `tutti bench COLLECTIVE --algorithm list` prints. *Correct* counts every input once, *same bits* "
           "gives the same on all ranks, *canonical* bits depend on inputs and number of ranks only."]
    for collective in COLLECTIVES:
        out += ["", f"## {collective}", "", shown(f"tutti bench {collective} --algorithm list")]
    return "\n".join(out) + "\n"


def command_pages():
    pages = {"commands/tutti.md": "# tutti\n\n" + shown("tutti --help") + "\n"}
    for command in commands():
        text = shell(f"tutti {command} --help").stdout
        pages[f"commands/{command}.md"] = f"# tutti {command}\n\n```console\n{text.rstrip()}\n```\n"
    return pages


def page_of(readme):
    """Returns the page of a folder's README."""
    folder = readme.relative_to(TREE).parent
    return "design/overview.md" if str(folder) == "." else f"design/{str(folder).replace('/', '_')}.md"


def page_at(path):
    """Returns the page of a file of the tree, or None."""
    if path.is_dir():
        path /= "README.md"
    if path.name == "README.md":
        return page_of(path)
    return str(path.relative_to(PAGES)) if path.is_relative_to(PAGES) else None


def with_links(text, source, page):
    """Returns the text of a file, with links to files of the tree replaced by links to their pages."""
    def link(match):
        words, target = match.groups()
        path, _, anchor = target.partition("#")
        wanted = (source.parent / path).resolve()
        if not path or re.match(r"https?:", target):
            return match[0]
        if not wanted.exists():
            if source.is_relative_to(PAGES):
                return match[0]  # a generated page, which MkDocs checks
            sys.exit(f"make_pages: {source} has a link to {target}, which is not there")
        found = page_at(wanted)
        if found:
            return f"[{words}]({os.path.relpath(found, os.path.dirname(page) or '.')}{'#' + anchor if anchor else ''})"
        return words if "`" in words else f"{words} (`{wanted.relative_to(TREE)}`)"

    return re.sub(r"\[([^\]\n]*)\]\(([^)\s]+)\)", link, text)


def design_pages():
    """Returns the README of each folder."""
    listed = subprocess.run(["git", "ls-files", "*README.md"], cwd=TREE, check=True, capture_output=True, text=True)
    readmes = [TREE / name for name in listed.stdout.split()]
    return {page_of(readme): with_links(readme.read_text(), readme, page_of(readme)) for readme in readmes}


def hand_written():
    return {(page := str(path.relative_to(PAGES))): with_links(with_output(path.read_text()), path, page)
            for path in sorted(PAGES.rglob("*.md"))}


def navigation(pages):
    """Returns the navigation order of the pages, which must contain each page."""
    def some(*prefixes):
        return [name for name in pages if name.startswith(prefixes)]

    return [{"Home": ["index.md", "tour.md", "features.md", "results.md", "measured.md", "mission.md", "design.md"]},
            {"Guides": [f"{name}.md" for name in GUIDES]},
            {"Getting started": [f"start/{name}.md" for name in ("c", "cpp", "python", "pytorch", "mpi")]},
            {"Errors": sorted(some("errors/"), key=lambda name: name != "errors/index.md")},
            {"Reference": some("reference/")}, {"Commands": some("commands/")}, {"Design": some("design/")}]


def main():
    folder = pathlib.Path(sys.argv[1])
    pages = {**hand_written(), **command_pages(), **design_pages(), "reference/settings.md": settings_page(),
             "reference/algorithms.md": catalogue_page(), "reference/c.md": c_reference.page(TREE / "bindings/c/tutti.h"),
             "reference/python.md": python_reference.page()}
    pages["style.css"] = (PAGES / "style.css").read_text()
    for name, text in pages.items():
        path = folder / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copytree(PAGES / "images", folder / "pages/images")
    settings = (TREE / "tools/docs/mkdocs.yml").read_text()
    (folder / "mkdocs.yml").write_text(f"{settings}docs_dir: pages\nnav: {json.dumps(navigation(pages))}\n")


if __name__ == "__main__":
    main()
