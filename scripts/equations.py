"""Typeset the equations of docstrings: `L_i(w) = sum over i of l(D_i, w)` becomes LaTeX."""

from __future__ import annotations

import re

GREEK = {
    "alpha", "beta", "gamma", "lam", "lambda", "rho", "tau", "eta", "epsilon", "eps", "phi", "Phi", "theta", "sigma",
}  # fmt: skip
NAMES = {"lam": "lambda", "eps": "epsilon"}
OPERATORS = {
    "exp", "log", "tanh", "sign", "softmax", "Var", "tr", "clip", "stop", "min", "max", "argmax", "dev", "mean", "MMD",
    "Adam", "Beta", "reverse", "head", "pull", "logit", "feature", "distance",
}  # fmt: skip
FUNCTIONS = {"exp", "log", "tanh", "min", "max"}
SUMS = {"sum": r"\sum", "product": r"\prod"}
SIGNS = {
    "<-": r"\leftarrow ", "->": r"\to ", "<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", "*": r"\,", "%": r"\%",
    "{": r"\{", "}": r"\}", "||": "",
}  # fmt: skip
OVER = re.compile(r"\b(sum|product|mean|variance|max|min)(?: of)? over (?=\w)")
END = re.compile(r" of (?!the |one |different |D_)| for |  +|$")
TOKEN = re.compile(
    r"(?P<name>[A-Za-z]+(?:-[a-z]+)*)"
    r"(?P<high>\^(?:\{[^}]*\}|[a-z0-9])(?=_))?"
    r"(?P<sub>_(?:\{[^}]*\}|\[[^)]*\)|<?[A-Za-z0-9]+(?:_[a-z]+)*(?:,[a-z]\b)?|\|_F))?"
    r"(?P<top>\^(?:\{[^}]*\}|\([^)]*\)|-?[A-Za-z0-9]+))?(?P<prime>'*)"
    r"|(?P<fraction>\b1/(?:[A-Z]|\d)\b|\(1/n\))"
    r"|(?P<power>\^(?:\{[^}]*\}|\([^)]*\)|-?[A-Za-z0-9]+))|(?P<under>_(?:\{[^}]*\}|[A-Z*]))"
    r"|(?P<wide>\s{2,})|(?P<dot> \. )|(?P<bar> \| )|(?P<norm>\|\||\|)"
    r"|(?P<sign><-|->|<=|>=|!=|[*%{}])|(?P<other>\d+(?:\.\d+)?|\s|.)"
)


def typeset(block: str) -> str:
    """Return a block of aligned LaTeX: a row for each line; a line indented deeper continues the one above."""
    lines = [line for line in block.splitlines() if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    rows = []
    for line in lines:
        if line[indent] == " ":
            rows.append(r"& \qquad " + convert(line.strip()))
            continue
        left, sign, right = _split(line.strip())
        rows.append(f"{convert(left)} &{sign} {convert(right)}" if sign else f"&{convert(left)}")
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"


def _split(line: str) -> tuple[str, str, str]:
    """Split a line at its first relation, where the rows align."""
    found = re.search(r" (=|<-) ", line)
    if found is None or re.search(r"[a-z]{4,} ", line[: found.start()].replace("direction", "")):
        return line, "", ""
    return line[: found.start()], {"=": "=", "<-": r"\leftarrow"}[found[1]], line[found.end() :]


def convert(text: str) -> str:
    """Return the LaTeX of an expression; what is no symbol and no operator is set as text."""
    parts: list[str] = []
    words: list[str] = []
    opened: dict[str, bool] = {}
    at = 0

    def flush() -> None:
        if words:
            parts.append(r"\text{ " + " ".join(words) + " }")
            words.clear()

    while at < len(text):
        over = OVER.match(text, at)
        if over is not None:
            end = END.search(text, over.end())
            assert end is not None
            flush()
            name = SUMS.get(over[1], rf"\operatorname*{{{over[1]}}}")
            parts.append(f"{name}_{{{convert(text[over.end() : end.start()])}}}")
            at = end.end() if end[0] == " of " else end.start()
            continue
        found = TOKEN.match(text, at)
        assert found is not None
        at = found.end()
        if found["name"]:
            plain = not (found["sub"] or found["high"] or found["top"] or found["prime"])
            if plain and _is_word(found["name"], text[at : at + 1]):
                words.append(found["name"])
                continue
            flush()
            parts.append(_convert_name(found))
        elif found["other"] and found["other"].isspace() and words:
            continue
        else:
            flush()
            parts.append(_convert_sign(found, opened))
    flush()
    text = re.sub(r"(?<=\\,)\\text\{ |(?<=[(/\[])\\text\{ |^\\text\{ ", r"\\text{", "".join(parts))
    return re.sub(r" \}(?=\\,|[)/\],]|$)", "}", text)


def _is_word(name: str, following: str) -> bool:
    """Ask whether a name is a word of a sentence."""
    if name == "grad" or name in GREEK or (name in OPERATORS and following in ("(", "_")):
        return False
    return (len(name) > 1 and not (name.isupper() and len(name) == 2)) or name == "a"


def _convert_name(found: re.Match[str]) -> str:
    name, sub, top = found["name"], found["sub"] or "", found["high"] or found["top"] or ""
    if name in SUMS and sub:
        return f"{SUMS[name]}{_lower(sub)}"
    if re.fullmatch(r"[a-z]{3,}", name) and name not in GREEK and re.fullmatch(r"_[a-z]{3,}", sub) and name != "grad":
        return rf"\text{{{name} {sub[1:]}}}{_raise(top)}"
    if name == "grad":
        base = r"\nabla"
    elif name in GREEK:
        base = "\\" + NAMES.get(name, name)
    elif name in OPERATORS:
        base = f"\\{name}" if name in FUNCTIONS else rf"\operatorname{{{name}}}"
    else:
        base = name if len(name) == 1 or (name.isupper() and len(name) == 2) else rf"\text{{{name}}}"
    text = base + found["prime"] + _lower(sub) + _raise(top)
    return f"{text} " if re.search(r"\\[a-zA-Z]+$", text) else text


def _lower(sub: str) -> str:
    inner = sub[1:].removeprefix("{").removesuffix("}") if sub[1:2] == "{" else sub[1:]
    if not inner:
        return ""
    if inner == "|_F":
        return r"\rVert_F"
    if re.fullmatch(r"[a-z]{3,}(_[a-z]+)*|[A-Z]{2,}|<?[a-z]{3,}", inner) and inner not in GREEK:
        return rf"_{{\text{{{inner.replace('_', ' ')}}}}}"
    if inner in GREEK:
        return f"_{{\\{NAMES.get(inner, inner)}}}"
    return f"_{{{convert(inner) if re.search('[-+ ]', inner) else inner}}}"


def _raise(top: str) -> str:
    inner = top[1:]
    if inner[:1] in ("{", "("):
        inner = inner[1:-1]
    return f"^{{{inner}}}" if inner else ""


def _convert_sign(found: re.Match[str], opened: dict[str, bool]) -> str:
    if found["fraction"]:
        return rf"\tfrac{{1}}{{{found['fraction'].strip('()')[2:]}}}"
    if found["power"]:
        return _raise(found["power"])
    if found["under"]:
        return _lower(found["under"])
    if found["wide"]:
        return r"\quad "
    if found["dot"]:
        return r"\cdot "
    if found["bar"]:
        return r"\mid "
    if found["norm"]:
        kind = found["norm"]
        opened[kind] = not opened.get(kind, False)
        return {"|": (r"\lvert ", r"\rvert "), "||": (r"\lVert ", r"\rVert ")}[kind][0 if opened[kind] else 1]
    if found["sign"]:
        return SIGNS[found["sign"]]
    return found["other"].strip()
