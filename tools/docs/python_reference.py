"""The reference of the Python package, from its docstrings."""
import enum
import inspect


def signature_of(value):
    try:
        return str(inspect.signature(value)).replace("'", "")
    except ValueError:  # of an extension: its first line says it
        return "(...)"


def documented(heading, name, value):
    text = inspect.getdoc(value) or ""
    first, _, rest = text.partition("\n")
    if "(" in first and "->" in first and first.startswith(name.split(".")[-1]):  # nanobind's docstrings begin with it
        return [f"{heading} `{first}`", "", rest.strip(), ""]
    call = signature_of(value) if callable(value) and not inspect.isclass(value) else ""
    return [f"{heading} `{name}{call}`", "", text, ""]


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
            out += [f"## `{name}` = `{value!r}`", ""]
    return "\n".join(out)
