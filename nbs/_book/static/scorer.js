// How Sphinx's search ranks: whole words before parts of words, titles and names before text.
// biome-ignore lint: Sphinx declares this name again with `var` and reads it there
var Scorer = {
  score: (result) => {
    const words =
      (new URLSearchParams(location.search).get("q") || "").toLowerCase().match(/[\p{L}\p{N}_]+/gu) || [];
    const name = `${result[1]} ${result[3] || ""}`.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || [];
    const whole = words.filter((word) => name.includes(word)).length;
    return result[4] + 30 * whole;
  },
  objNameMatch: 11,
  objPartialMatch: 2,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 4,
  term: 5,
  partialTerm: 1,
};
