#!/usr/bin/env python3
"""What tools/sbom lists is what the loader takes, with the versions that dpkg has: sbom_test.py SBOM FILE..."""
import json
import re
import shutil
import subprocess
import sys


def ask(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    sbom, *files = sys.argv[1:]
    if not shutil.which("dpkg"):
        print("skipped: this is not Debian or Ubuntu")
        return
    bom = json.loads(ask(sbom, "--version", "1.2.3", *files))
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6"), bom
    assert bom["metadata"]["component"]["version"] == "1.2.3", bom
    listed = {component["name"]: component for component in bom["components"]}
    # An independent reference: the packages of the C library and of hwloc.
    for soname in ("libc.so.6", "libcrypto.so.3", "libstdc++.so.6"):
        path = re.search(rf"{re.escape(soname)} => (\S+)", ask("ldd", files[0]))[1]
        owners = [line.split(":")[0] for line in ask("bash", "-c", f"dpkg -S '*/{soname}'").splitlines()]
        found = [name for name in owners if name in listed]
        assert found, f"{path} belongs to one of {owners}, and none is listed: {sorted(listed)}"
        version = ask("dpkg-query", "-W", "-f=${Version}\n", found[0]).splitlines()[0]
        assert listed[found[0]]["version"] == version, (listed[found[0]], version)
    for component in listed.values():
        assert component["licenses"] and component["purl"].startswith("pkg:"), component
    references = {component["bom-ref"] for component in listed.values()}
    assert len(references) == len(bom["components"]), "two components have one reference"
    assert set(bom["dependencies"][0]["dependsOn"]) == references
    again = json.loads(ask(sbom, "--version", "1.2.3", *files))
    assert again["serialNumber"] == bom["serialNumber"], "the same files have another number"
    print(f"{len(listed)} packages, as the loader and dpkg have them")


main()
