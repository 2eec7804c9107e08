"""Formulas that stand as plain text in docstrings, registries and captions, typeset on the site's pages.

`typeset("Sum over sqrt(K), O(n^2)")` is "Sum over $\\sqrt{K}$, $O(n^{2})$". What stands in backticks or
dollars stays as it is. So a docstring can be read in `help()`, and a formula is written once.
"""

import re

_TOKEN = re.compile(r"\s\|\s|\s+|[A-Za-z]+|\d+(?:,\d{3})*(?:\.\d+)?|<=|>=|!=|\.\.+|.", re.S)
_KEPT = re.compile(  # code, TeX, addresses, names with an underscore, and what only looks like a formula
    r"(`+[^`]*`+|\$[^$]*\$|https?://\S+|\b(?!sum_|prod_|mean_|SST_)\w*[A-Za-z]{2,}_\w+|\b\w+_[a-z]{3,}\w*"
    r"|\bI/O\b|\b[Aa]ppendix [A-Z]\b|\bC library\b|\b[A-Z]\.\d|\bU\+\w+|\w+\.T\b"
    r"|\b[A-Za-z]+\d\w*|\b\d+[A-Z]{2}\w*)"
)
_LETTER = re.compile(r"(?<![\w.'@&/*-])([b-wyzB-HJ-Z])(?![\w'@&/*+\[-])(?!\.\w)")
_SPACED = {
    "+": "+",
    "-": "-",
    "*": r"\cdot ",
    ".": r"\cdot ",
    "&": r"\cap ",
    "/": "/",
    "x": r"\times ",
    "~": r"\sim ",
}
_RELATIONS = {"<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", "=": "=", "<": r"\lt ", ">": r"\gt "}
_TIGHT = {"/": "/", "..": r"\dots ", "=": "="}  # without blanks, also outside of brackets
_LARGE = {f: rf"\{f} " for f in ("sum", "prod")} | {"mean": r"\operatorname{mean} "}  # only with an index
_NAMES = {f: rf"\{f} " for f in "exp log ln cos max min det alpha beta gamma phi pi".split()}
_NAMES |= {f: rf"\mathrm{{{f}}}" for f in ("SST", "tr")}
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|"}
_BRACKETS = {"|": (r"\vert ", r"\vert "), "{": (r"\{", r"\}")}
_ARTICLES = ("a", "A", "I")


class _Formula:
    "The longest formula that begins at a token: its TeX, where it ends, and whether it is more than a word."

    def __init__(self, tokens: list[str], at: int):
        self.tokens, self.at, self.strong, self.open = [*tokens, "", "", ""], at, False, []
        self.last = ""  # the word of the last term, when nothing stands above or below it
        self.tex = self.terms()

    def next(self, ahead: int = 0) -> str:
        "A token that was not read yet."
        return self.tokens[self.at + ahead]

    def terms(self) -> str | None:
        "Terms and what joins them, as far as they go."
        sign = self.next() if self.next() in ("-", "+") and not self.next(1).isspace() else ""
        self.at += bool(sign)
        tex = self.term()
        while tex is not None:
            kept = self.at, self.strong
            joint = self.joint()
            more = None if joint is None else self.term()
            if more is None:
                self.at, self.strong = kept
                break
            tex += joint + more
        return None if tex is None else sign + tex

    def joint(self) -> str | None:
        "What joins two terms: a sign, or nothing for a product."
        token, blank = self.next(), self.next().isspace()
        signs = _SPACED | _RELATIONS
        if token == " | ":
            self.at += 1
            return r"\cup "
        if blank and self.next(1) in signs and self.next(2).isspace():
            self.at, self.strong = self.at + 3, True
            return signs[self.tokens[self.at - 2]]
        follows = self.next(1) == "(" or self.next(1)[:1].isalpha()
        if token == "." and follows and not self.tokens[self.at - 1][-1:].isdigit():
            self.at += 1
            return r"\cdot "
        if token == "|" and self.open[-1:] == ["("] and self.next(1).isalpha():
            self.at += 1
            return r"\mid "
        is_word = token == "-" and len(self.next(1)) > 1 and self.next(1).isalpha()
        tight = _TIGHT | signs if self.open else _TIGHT
        if token in tight and token != "." and not is_word and not self.next(1).isspace():
            self.at, self.strong = self.at + 1, True
            return (signs | _TIGHT)[token]
        self.at += blank
        return "" if not blank else None if self.is_prose() else r"\,"

    def is_prose(self) -> bool:
        "Does a blank end the formula?"
        word = self.next()
        if self.last in _LARGE or word[:1].isdigit() or word in ("(", "["):
            return not (self.last in _LARGE or self.open and word == "(")
        words = [w for w in (self.last, word) if w.isalpha()]
        words = [w for w in words if w not in _ARTICLES or self.next(1) not in ("_", "^")]
        return any(
            w in _ARTICLES or not is_known(w) and (w == self.last or self.next(1) != "(") for w in words
        )

    def term(self) -> str | None:
        "A number, a letter, a function or brackets, with what is above and below."
        token = self.next()
        if token == "-" and self.last in _LARGE:
            self.at, self.last = self.at + 1, ""
            tex = self.term()
            return tex and "-" + tex
        if token in _CLOSING:
            tex = self.group()
        elif is_known(token) or re.match(r"\d|\.\.", token):
            self.at, self.strong = self.at + 1, self.strong or token == "pi"
            tex = {"..": r"\dots "}.get(token) or (_NAMES | _LARGE).get(token, token)
        elif re.fullmatch("[A-Za-z]{2,}", token) and (
            self.next(1) == "(" or self.open or self.tokens[self.at - 1] == "/"
        ):
            self.at += 1
            tex = {2: token, 4: token.replace("sqrt", r"\sqrt")}.get(len(token), "")
            tex = tex if tex == r"\sqrt" or len(token) == 2 else rf"\mathrm{{{token}}}"
        else:
            return None
        return None if tex is None else self.with_scripts(tex, token)

    def with_scripts(self, tex: str, token: str) -> str | None:
        "A term with its indices, exponents, primes, and the brackets of a function."
        has_index, self.last = self.next() in ("_", "^"), token
        while script := self.script(token):
            tex, self.strong = tex + script, True
        if self.next() == "(" and token.isalpha() and (len(token) > 1 or token.isupper() or token in "ps"):
            inner = self.group()
            if inner is None:
                return tex if "_" in tex and len(token) == 1 else None
            self.strong, has_index = True, True
            tex += f"{{{inner[1:-1]}}}" if token == "sqrt" else inner
        before = self.next().isspace() and re.fullmatch(r"[B-HJ-Zb-z]|\(|\|", self.next(1))
        if token in _LARGE and not has_index:
            return (
                (rf"\mathrm{{{token}}}" if self.open else None)
                if token == "mean"
                else tex
                if before
                else None
            )
        self.strong |= bool(before and token in _NAMES)
        self.last = token if token in _LARGE or not has_index else ""
        return tex

    def script(self, token: str) -> str:
        "An index, an exponent, a prime or a star; nothing where none follows."
        mark, kept = self.next(), self.at
        if token.isalpha() and (mark == "'" and self.next(1) != "s" or mark == "*" and self.next(1) in "|),"):
            self.at += 1
            return "'" if mark == "'" else "^{*}"
        if mark == "!" and self.open:
            self.at += 1
            return "!"
        if mark not in ("_", "^"):
            return ""
        self.at += 1
        if self.next() in ("(", "{"):
            inner = self.group()
            if inner is not None:
                return mark + "{" + re.sub(r"^(\(|\\\{)|(\)|\\\})$", "", inner) + "}"
        sign = "-" * (self.next() == "-")
        word = self.next(len(sign))
        if re.fullmatch(r"\d+|[A-Za-z]+", word):
            self.at += len(sign) + 1
            after = (
                self.next()
                if self.next() == "'" or self.next() == "+" and self.next(1) in ("/", ")", " ")
                else ""
            )
            self.at += len(after)
            word += after
            return (
                mark + "{" + sign + (word if len(word) < 4 or word.isdigit() else rf"\mathrm{{{word}}}") + "}"
            )
        self.at = kept
        return ""

    def group(self) -> str | None:
        "Brackets and what they hold, with commas."
        kept, opening = self.at, self.next()
        self.at += 1
        self.open.append(opening)
        inner = self.terms()
        while inner is not None and opening != "|" and self.next() == ",":
            self.at += 1 + self.next(1).isspace()
            more = self.terms()
            inner = None if more is None else f"{inner}, {more}"
        self.open.pop()
        if inner is None or self.next() != _CLOSING[opening]:
            self.at = kept
            return None
        self.at, self.strong = self.at + 1, self.strong or opening == "|"
        left, right = _BRACKETS.get(opening, (opening, _CLOSING[opening]))
        return f"{left}{inner}{right}"


def is_known(word: str) -> bool:
    "Is it a letter or a name of mathematics?"
    return bool(re.fullmatch("[A-Za-z]", word)) or word in _NAMES or word in _LARGE


def is_formula(found: _Formula, tokens: list[str]) -> bool:
    "Is it more than a word or a number?"
    return bool(found.tex) and found.strong and any(is_known(t) or t == "sqrt" for t in tokens)


def _in_text(text: str, form: str) -> str:
    "Text without code: its formulas, then letters that stand alone."
    tokens, parts, at = _TOKEN.findall(text), [""], 0
    while at < len(tokens):
        inside = parts[-1][-1:].isalnum() and tokens[at][0].isalnum()
        found = None if inside or tokens[at].isspace() else _Formula(tokens, at)
        if found and is_formula(found, tokens[at : found.at]):
            parts += [form.format(found.tex.strip()), ""]
            at = found.at
        else:
            parts[-1] += tokens[at]
            at += 1
    parts[::2] = [_LETTER.sub(lambda m: form.format(m[1]), p) for p in parts[::2]]
    return "".join(parts)


def typeset(
    text: str,
    form: str = "${}$",  # What a formula becomes; {} is its TeX
) -> str:
    "Text whose formulas are typeset."
    return "".join(p if k % 2 else _in_text(p, form) for k, p in enumerate(_KEPT.split(text)))
