// Filters a ledger table by kind, verdict and text. Without scripts the table stands as it is.
document.addEventListener("DOMContentLoaded", () => {
  for (const ledger of document.querySelectorAll(".ledger")) {
    const rows = [...ledger.querySelectorAll("tbody tr")];
    const bar = document.createElement("form");
    bar.className = "ledger-filter";
    bar.setAttribute("aria-label", "Filter the rows");
    const fields = { kind: "all kinds", verdict: "all verdicts" };
    const chosen = {};
    for (const [name, all] of Object.entries(fields)) {
      const select = document.createElement("select");
      select.setAttribute("aria-label", name);
      select.append(new Option(all, ""));
      for (const value of new Set(rows.map((row) => row.dataset[name]))) select.append(new Option(value, value));
      chosen[name] = select;
      bar.append(select);
    }
    const words = document.createElement("input");
    words.type = "search";
    words.placeholder = "words";
    words.setAttribute("aria-label", "words");
    const count = document.createElement("output");
    bar.append(words, count);
    const show = () => {
      let shown = 0;
      for (const row of rows) {
        const fits = Object.entries(chosen).every(([name, s]) => !s.value || row.dataset[name] === s.value);
        const says = row.textContent.toLowerCase().includes(words.value.toLowerCase());
        row.hidden = !(fits && says);
        shown += !row.hidden;
      }
      count.textContent = `${shown} of ${rows.length} rows`;
    };
    bar.addEventListener("input", show);
    bar.addEventListener("submit", (event) => event.preventDefault());
    ledger.before(bar);
    show();
  }
});
