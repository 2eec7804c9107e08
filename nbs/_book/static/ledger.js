// Filters above the ledger's rows and the gallery's cards. Without scripts both stand as they are.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  // A form of choices and a field for words; `show(values)` gets what is chosen and returns a sentence.
  function filter(place, choices, show) {
    const form = document.createElement("form");
    form.className = "filter";
    form.setAttribute("role", "search");
    const asked = new URLSearchParams(location.search);
    const fields = {};
    for (const [name, values] of Object.entries(choices)) {
      const select = document.createElement("select");
      select.setAttribute("aria-label", name);
      select.append(new Option(`every ${name}`, ""));
      for (const value of values) select.append(new Option(value, value));
      if (values.includes(asked.get(name))) select.value = asked.get(name);
      fields[name] = select;
      form.append(select);
    }
    const words = document.createElement("input");
    Object.assign(words, { type: "search", placeholder: "words", value: asked.get("words") || "" });
    words.setAttribute("aria-label", "words");
    fields.words = words;
    const count = document.createElement("output");
    const reset = document.createElement("button");
    Object.assign(reset, { type: "button", textContent: "reset" });
    reset.addEventListener("click", () => {
      for (const field of Object.values(fields)) field.value = "";
      update();
    });
    form.append(words, reset, count);
    const update = () => {
      const chosen = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value]));
      count.textContent = show(chosen);
      reset.disabled = !Object.values(chosen).some(Boolean);
      const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value)).toString();
      try {
        history.replaceState(null, "", (query ? `?${query}` : location.pathname) + location.hash);
      } catch {
        /* a page opened as a file may keep its address */
      }
    };
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    place.append(form);
    update();
  }

  const kinds = (nodes, name) =>
    [...new Set(nodes.flatMap((node) => (node.dataset[name] || "").split("|")))].filter(Boolean);

  const ledger = document.getElementById("ledger-filter");
  if (ledger) {
    const rows = [...document.querySelectorAll(".ledger tbody tr")];
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const names = ["kind", "verdict"];
    filter(ledger, Object.fromEntries(names.map((name) => [name, kinds(rows, name)])), (chosen) => {
      const words = chosen.words.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const fits = names.every((name) => !chosen[name] || row.dataset[name] === chosen[name]);
        row.hidden = !(fits && words.every((word) => texts.get(row).includes(word)));
        shown += !row.hidden;
      }
      return `${shown} of ${rows.length} rows`;
    });
    document
      .getElementById(decodeURIComponent(location.hash.slice(1)))
      ?.scrollIntoView({ behavior: "instant" });
  }

  // All rows of all sources: they come from a script, and a few are drawn at a time.
  const search = document.getElementById("ledger-search");
  if (search && globalThis.LEDGER) {
    const { rows, sources } = globalThis.LEDGER;
    const old = decodeURIComponent(location.hash.slice(1));
    const moved = rows.find((row) => row.id === old);
    if (moved) location.replace(`${moved.source}.html#${encodeURIComponent(old)}`);
    const place = document.getElementById("ledger-found");
    const texts = rows.map((row) => Object.values(row).join(" ").toLowerCase());
    const of = (name) => [...new Set(rows.map((row) => row[name]))];
    const by = { source: Object.values(sources), kind: of("kind"), verdict: of("verdict") };
    const heads = ["where", "the source says", "we measured", "verdict"];
    const cell = (line, ...nodes) => {
      const made = line.insertCell();
      made.dataset.head = heads[made.cellIndex];
      made.append(...nodes);
    };
    const word = (text, tag = "span") => Object.assign(document.createElement(tag), { textContent: text });
    const coded = (text) => text.split(/`([^`]+)`/).map((part, k) => (k % 2 ? word(part, "code") : part));
    const draw = (found, most) => {
      const table = document.createElement("table");
      table
        .createTHead()
        .insertRow()
        .append(...heads.map((head) => word(head, "th")));
      const body = table.createTBody();
      for (const row of found.slice(0, most)) {
        const line = body.insertRow();
        const link = word(row.where, "a");
        link.href = `${row.source}.html#${encodeURIComponent(row.id)}`;
        const badge = word(row.verdict);
        badge.className = `verdict ${row.verdict.replace(" ", "-")}`;
        cell(line, link);
        cell(line, ...coded(row.says));
        cell(line, ...coded(row.text));
        cell(line, badge);
      }
      place.replaceChildren(table);
      if (found.length > most) {
        const more = Object.assign(word(`show all ${found.length}`, "button"), { type: "button" });
        more.addEventListener("click", () => draw(found, found.length));
        place.append(more);
      }
    };
    filter(search, by, (chosen) => {
      const words = chosen.words.toLowerCase().split(/\s+/).filter(Boolean);
      const found = rows.filter(
        (row, k) =>
          (!chosen.source || sources[row.source] === chosen.source) &&
          (!chosen.kind || row.kind === chosen.kind) &&
          (!chosen.verdict || row.verdict === chosen.verdict) &&
          words.every((w) => texts[k].includes(w)),
      );
      draw(found, 40);
      return `${found.length} of ${rows.length} rows`;
    });
  }

  const gallery = document.getElementById("gallery-filter");
  if (gallery) {
    const cards = [...document.querySelectorAll(".card")];
    const verdicts = [...new Set(cards.flatMap((card) => card.dataset.verdicts.split(" ")))].filter(Boolean);
    filter(gallery, { part: kinds(cards, "part"), verdict: verdicts.sort() }, (chosen) => {
      let shown = 0;
      for (const card of cards) {
        const fits =
          (!chosen.part || card.dataset.part === chosen.part) &&
          (!chosen.verdict || card.dataset.verdicts.split(" ").includes(chosen.verdict)) &&
          card.textContent.toLowerCase().includes(chosen.words.toLowerCase());
        card.hidden = !fits;
        shown += fits;
      }
      for (const part of document.querySelectorAll(".cards")) {
        part.closest("section").hidden = !part.querySelector(".card:not([hidden])");
      }
      return `${shown} of ${cards.length} figures`;
    });
  }
});
