"""Small pictures from lines, dots and words: once described, written as SVG or PDF."""
