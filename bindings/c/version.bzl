"""Tutti's version, as in tutti.h."""

VERSION = "0.1.0"

# Prints a header as it is installed: what it includes of Tutti's is below tutti/.
BELOW_TUTTI = """sed -E 's,^( *# *include ")(base|collectives|topology|training|transport)/,\\1tutti/\\2/,'"""
