"""The reference of the Python package, from its docstrings."""
import enum
import inspect
import re


def signature_of(name, value, text):
    """Returns (signature, documentation)."""
    first, _, rest = text.partition("\n")
    short = name.split(".")[-1]
    if first.startswith(f"{short}("):  # of the extension, whose docstrings begin with it
        return first, rest.strip()
    if not callable(value) or inspect.isclass(value):
        return "", text
    # Annotations are strings in these modules; defaults that are strings keep their quotes.
    return short + re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value))), text


def documented(heading, name, value):
    call, text = signature_of(name, value, inspect.getdoc(value) or "")
    return [f"{heading} `{name}`", "", *(["```python", call, "```", ""] if call else []), text, ""]


def class_part(name, value):
    out = documented("##", name, value)
    if issubclass(value, enum.Enum):
        return out + [f"- `{member.name}` = {member.value}" for member in value] + [""]
    for member, found in vars(value).items():
        if not member.startswith("_") and (callable(found) or isinstance(found, property)) and inspect.getdoc(found):
            out += documented("###", f"{name}.{member}", found)
    return out


def page():
    import tutti

    out = ["# Python interface", "", "From the docstrings of the package `tutti`.", ""]
    for name in tutti.__all__:
        value = getattr(tutti, name)
        if inspect.isclass(value) and value.__module__.startswith("tutti"):
            out += class_part(name, value)
        elif callable(value):
            out += documented("##", name, value)
        else:
            out += [f"## `{name}`", "", f"`{value!r}`", ""]
    return "\n".join(out)
