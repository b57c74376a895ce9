"""Tutti's version, as in tutti.h."""

VERSION = "0.1.0"
