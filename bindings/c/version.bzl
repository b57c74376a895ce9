"""Tutti's version, as in tutti.h."""

VERSION = "0.1.0"

# Prints a header in its installed form: Tutti's includes are below tutti/.
BELOW_TUTTI = """sed -E 's,^( *# *include ")(base|collectives|topology|training|transport)/,\\1tutti/\\2/,'"""
