"""The ledger: shares of the verdicts, and every row with a filter above."""

import json
import re

from brace_nb.companion import VERDICTS, answers, in_worlds, read_facts
from sources import ROOT, SOURCES, badges, escaped, linked, put, raw, toctree, verdict_class, wide


def figures_by_row() -> dict[str, list[str]]:
    "Row -> the figures that show it."
    found: dict[str, list[str]] = {}
    for part in read_facts(ROOT / "figures").values():
        for name, facts in part["figures"].items():
            for id in facts["claims"]:
                found.setdefault(id, []).append(name)
    return found


def shown_in(row: dict, figures: list[str]) -> str:
    "Links to the figures and the notebook of a row."
    links = [
        f'<a href="../_static/figures/{linked(f)}.png">{escaped(f.partition("/")[2])}</a>' for f in figures
    ]
    if row["experiment"]:
        links.append(f'<a href="../nbs/experiments/{linked(row["experiment"])}.html">notebook</a>')
    return "<br>".join(links)


def said(row: dict) -> str:
    "What the source says."
    unit = f" {escaped(row['unit'])}" if row["unit"] else ""
    allowed = f" <small>(± {escaped(row['tolerance'])})</small>" if row["tolerance"] is not None else ""
    quoted = escaped(row["says"])
    return f"<q>{quoted}</q>" if isinstance(row["says"], str) else f"{quoted}{unit}{allowed}"


def found(row: dict) -> str:
    "What we measured, what the same says where nothing was learned, and what second worlds say."
    text = escaped(row["text"]) if row["text"] else f"<small>needs {escaped(row['needs'])}</small>"
    null = f"<small>null: {escaped(row['null_text'])}</small>" if row.get("null_text") else ""
    note = f"<small>{escaped(row['note'])}</small>" if row["note"] else ""
    again = [f"<small>on {w}: {escaped(other['text'])}</small>" for w, other in answers(row).items()]
    return "<br>".join(x for x in (text, null, note, *again) if x)


HEADS = ("row", "the source says", "what would fail", "we measured", "verdict", "shown in")


def line(row: dict, figures: list[str]) -> str:
    "A row of the ledger as a row of a table."
    id = escaped(row["id"])
    broken = "<wbr>".join(escaped(piece) for piece in re.split(r"(?<=[._])", row["id"]))
    judged = f'<span class="{verdict_class(row["verdict"])}">{row["verdict"]}</span>'
    judged += f"<br><small>{in_worlds(row)}</small>" * bool(answers(row))
    cells = [
        f'<a href="#{linked(row["id"])}"><code>{broken}</code></a><br><small>{escaped(row["where"])}</small>',
        said(row),
        escaped(row["test"]),
        found(row),
        f"{judged}<br><small>{escaped(row['kind'])}</small>",
        shown_in(row, figures),
    ]
    source, chapter = SOURCES[row["source"]]
    facts = dict(kind=row["kind"], verdict=row["verdict"], source=source, chapter=f"{source}, {chapter}")
    data = " ".join(f'data-{k}="{escaped(v)}"' for k, v in facts.items())
    body = "".join(f'<td data-head="{h}">{c}</td>' for h, c in zip(HEADS, cells, strict=True))
    return f'<tr id="{id}" {data}>{body}</tr>'


def table(rows: list[dict], figures: dict) -> list[str]:
    "Rows of the ledger as a table that needs no script."
    head = "<tr>" + "".join(f"<th>{h}</th>" for h in HEADS) + "</tr>"
    lines = [line(r, figures.get(r["id"], [])) for r in rows]
    return [f'<div class="ledger"><table><thead>{head}</thead><tbody>', *lines, "</tbody></table></div>"]


def bar(rows: list[dict], link: str = "") -> str:
    "The shares of the verdicts as a bar, and in words for those who do not see it."
    count = {v: sum(r["verdict"] == v for r in rows) for v in VERDICTS}
    parts = [
        f'<span class="{verdict_class(v)}" style="flex:{n}" title="{n} {v}">{n}</span>'
        for v, n in count.items()
        if n
    ]
    words = ", ".join(f"{n} {v} ({100 * n / len(rows):.0f} %)" for v, n in count.items() if n)
    return f'<div class="shares" role="img" aria-label="{words}">{"".join(parts)}</div>{link}'


def counts(rows: list[dict], folder: str = "") -> str:
    "How many rows have each verdict, each in its color, with a link to them."
    count = {v: sum(r["verdict"] == v for r in rows) for v in VERDICTS}
    words = (
        f'<a class="{verdict_class(v)}" href="{folder}rows.html?verdict={v.replace(" ", "+")}">{n} {v}</a>'
        for v, n in count.items()
        if n
    )
    return f'<p class="counts">{" ".join(words)}</p>'


def with_code(text: str) -> str:
    "A text whose code between backticks is set as code."
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))


def share_table(rows: list[dict]) -> list[str]:
    "Chapter by chapter, how many rows have each verdict."
    head = "".join(f'<th><span class="{verdict_class(v)}">{v}</span></th>' for v in VERDICTS)
    lines = [f"<tr><th>chapter</th><th>rows</th><th class='wide-only'>shares</th>{head}</tr>"]
    for source, (name, chapter) in SOURCES.items():
        mine = [r for r in rows if r["source"] == source]
        if mine:
            count = [sum(r["verdict"] == v for r in mine) for v in VERDICTS]
            cells = "".join(f"<td>{f'{n} ({100 * n / len(mine):.0f} %)' if n else ''}</td>" for n in count)
            link = f'<a href="{source}.html">{name}, {chapter}</a>'
            shown = f'<td class="wide-only">{bar(mine)}</td>'
            lines.append(f"<tr><td>{link}</td><td>{len(mine)}</td>{shown}{cells}</tr>")
    return [f'<div class="ledger share-table"><table>{"".join(lines)}</table></div>']


WORDS = """A row is one statement, figure, table or number of a source. It holds what the source says,
what would make our test of it fail, what we measured and a verdict.

- **reproduced**: the statement stands here; **differs**: on our data or at our scale it does not;
- **refuted**: a proof, an arithmetic check or a counterexample in the source's own domain;
- **undecided**: the uncertainty covers the threshold, or the measurement says the same where nothing was
  learned;
- **checked**: a definition, a correction of ours, or a contradiction inside the source, verified;
- **not run**: needs data, weights or a machine that is not here; the row says which."""


def ledger(rows: list[dict]) -> None:
    "A page of shares, and a page of all rows: every row has one place for good."
    figures = figures_by_row()
    page = wide("Ledger", WORDS, "", *raw(counts(rows)))
    page += [f"[All {len(rows)} rows, to filter and to search](rows.md)", "", "## Shares by chapter", ""]
    present = [source for source in SOURCES if any(r["source"] == source for r in rows)]
    page += [*raw(*share_table(rows)), *toctree("rows", *present)]
    put("ledger/index.md", "\n".join(page))
    for source in present:
        name, chapter = SOURCES[source]
        mine = [r for r in rows if r["source"] == source]
        body = wide(f"Ledger: {name}, {chapter}", f"{len(mine)} rows. [All sources](rows.md)", "")
        body += [*raw('<div id="ledger-filter"></div>')]
        body += raw(f'<section class="chapter" id="{source}">', *table(mine, figures), "</section>")
        put(f"ledger/{source}.md", "\n".join(body))
    search(rows, present)


def search(rows: list[dict], present: list[str]) -> None:
    "A page that looks through all rows and the script that holds them; it lists the sources, too."
    keys = ("id", "where", "says", "text", "verdict", "kind", "source")
    told = [r | dict(text=r["text"] or f"needs {r['needs']}") for r in rows]  # as on the pages of the sources
    listed = [{k: "" if r[k] is None else str(r[k]) for k in keys} for r in told]
    names = {source: ", ".join(SOURCES[source]) for source in present}
    said = json.dumps(dict(sources=names, rows=listed), ensure_ascii=False, separators=(",", ":"))
    put("_static/ledger_rows.js", f"globalThis.LEDGER = {said};\n")
    body = wide("All rows of the ledger", "Each source has a page of its own:", "")
    body += [f"- [{name}]({source}.md)" for source, name in names.items()]
    script = '<script src="../_static/ledger_rows.js"></script>'
    body += [
        "",
        *raw(
            '<div id="ledger-search"></div>',
            '<section class="chapter"><div class="ledger" id="ledger-found"></div></section>',
            script,
        ),
    ]
    put("ledger/rows.md", "\n".join(body))


def refuted(rows: list[dict], ids: list[str]) -> list[str]:
    "Some rows for the front page."
    by_id = {r["id"]: r for r in rows}
    chosen = [by_id[id] for id in ids if id in by_id and by_id[id]["verdict"] == "refuted"]
    return [
        f"<li><q>{with_code(r['says'])}</q> <small>({'thesis' if 'thesis' in r['source'] else 'post'}, "
        f"{escaped(r['where'])})</small> {badges([r], '')}<br>{escaped(r['text'])}</li>"
        for r in chosen
    ]
