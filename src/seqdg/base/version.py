"""The version of seqdg, and where it is installed."""

from pathlib import Path

VERSION = "0.2.0"
FOLDER = Path(__file__).resolve().parents[1]
