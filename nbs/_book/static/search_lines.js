// A line of context below each hit of the search: the sentence of the page that has a word of the question.
// The texts come from a script and not by a request, which a page opened as a file may not make.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("search-results");
  if (!place) return;
  const asked =
    (new URLSearchParams(location.search).get("q") || "").toLowerCase().match(/[\p{L}\p{N}_]+/gu) || [];
  const letter = /[\p{L}\p{N}_]/u;

  // Where a word stands in a text as a whole word; -1 where it does not.
  function wholeWord(text, word) {
    const low = text.toLowerCase();
    for (let at = low.indexOf(word); at >= 0; at = low.indexOf(word, at + 1)) {
      if (!letter.test(low[at - 1] || " ") && !letter.test(low[at + word.length] || " ")) return at;
    }
    return -1;
  }

  function sentence(text) {
    const spots = asked.map((word) => wholeWord(text, word)).filter((at) => at >= 0);
    const at = spots.length ? Math.min(...spots) : 0;
    const start = Math.max(0, text.lastIndexOf(". ", at) + 1, at - 120);
    const end = text.indexOf(". ", at);
    return text.slice(start, end < 0 ? start + 200 : Math.min(end + 1, start + 240)).trim();
  }

  function line(item) {
    const link = item.querySelector("a");
    if (!link || item.querySelector(".search-line")) return;
    const [path, anchor] = link.getAttribute("href").split("#");
    const page = path.replace(/\.html.*$/, "").replace(/^(\.\.?\/)+/, "");
    const name = decodeURIComponent(anchor || "");
    const text = globalThis.TEXTS.functions[name] || sentence(globalThis.TEXTS.pages[page] || "");
    if (!text) return;
    const shown = document.createElement("p");
    shown.className = "search-line";
    shown.textContent = text;
    item.append(shown);
  }

  const script = document.createElement("script");
  script.src = `${document.documentElement.dataset.content_root || ""}_static/search_texts.js`;
  script.addEventListener("load", () => {
    const all = () => place.querySelectorAll("li").forEach(line);
    new MutationObserver(all).observe(place, { childList: true, subtree: true });
    all();
  });
  document.head.append(script);
});
