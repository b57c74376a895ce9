"""The reference of the C interface, from the comments of tutti.h."""
import re


def text_of(comment):
    lines = [re.sub(r"^\s*(/\*|\*/|\*)? ?", "", line.replace("*/", "")) for line in comment.splitlines()]
    return "\n".join(lines).strip()


def prose(text):
    return text.replace("*", "\\*")


def names_of(declaration):
    """Returns the functions, types and macros that a block declares."""
    found = re.findall(r"\b(tutti_\w+)\(", re.sub(r"/\*.*?\*/", "", declaration, flags=re.S).split("{")[0])
    found = [name for name in found if f"(*{name}" not in declaration]
    found += re.findall(r"\(\*(tutti_\w+_t)\)", declaration)
    if not found:
        found = re.findall(r"^typedef .*?(\w+);|^} (tutti_\w+);", declaration, re.M)
        found = [first or second for first, second in found]
    return found or re.findall(r"#define (TUTTI_\w+)", declaration)


def page(header):
    text = header.read_text()
    about, body = re.match(r"(/\*.*?\*/)(.*)", text, re.S).groups()
    out = ["# C interface", "", "From the comments of `bindings/c/tutti.h`.", ""]
    for paragraph in text_of(about).split("\n\n"):
        example = "  " in paragraph  # kept as it stands
        out += ["```c", *(line.removeprefix("  ") for line in paragraph.splitlines()), "```"] if example else [prose(paragraph)]
        out.append("")
    sections = re.split(r"/\* ---- (.*?) ---- \*/\n", body)
    for title, section in zip(sections[1::2], sections[2::2]):
        out += [f"## {title[0].upper()}{title[1:]}", ""]
        section = re.sub(r"^#(if|endif|ifdef|ifndef).*\n|^}\n\n?(?=#endif)", "", section, flags=re.M)
        for block in re.split(r"\n\n+", section.strip()):
            comment = re.match(r"/\*.*?\*/\n", block, re.S)
            declaration = block[comment.end():] if comment else block
            if not names_of(declaration):
                continue
            out += ["### " + ", ".join(f"`{name}`" for name in dict.fromkeys(names_of(declaration))), ""]
            out += [prose(text_of(comment[0])), ""] if comment else []
            out += ["```c", declaration.strip().replace("TUTTI_API ", ""), "```", ""]
    return "\n".join(out)
