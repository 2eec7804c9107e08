// The nearest binary corner of a vector, and where stopping at the first descent fails (S-BRaCE).
"use strict";

brace.corner = (() => {
  // --- mathematics: as brace_nb.codes has it, in float64

  const descending = (v) => v.slice().sort((a, b) => b - a);

  // S(K): sum of the K largest entries over sqrt(K), for K = 1..D.
  function partialSums(v) {
    let total = 0;
    return descending(v).map((x, k) => {
      total += x;
      return total / Math.sqrt(k + 1);
    });
  }

  // The smallest K with the largest S(K).
  function bestK(v) {
    let total = 0,
      best = -1,
      at = 0;
    descending(v).forEach((x, k) => {
      total += x;
      const value = (total * total) / (k + 1);
      if (value > best) [best, at] = [value, k + 1];
    });
    return at;
  }

  // The first K with S(K) > S(K + 1): the obvious rule, and wrong.
  function firstDescent(v) {
    const S = partialSums(v);
    for (let k = 0; k + 1 < S.length; k++) if (S[k] > S[k + 1]) return k + 1;
    return S.length;
  }

  // The K largest entries, and what equals the last of them.
  function keep(v, K) {
    const least = descending(v)[K - 1];
    return v.map((x) => x >= least);
  }

  const sizes = (v) => v.map(Math.abs);
  const binarize = (v) => keep(v, bestK(v));
  const stopAtFirstDescent = (v) => keep(v, firstDescent(v));

  // Signs on the code of the sizes.
  function ternarize(v) {
    const code = binarize(sizes(v));
    return v.map((x, i) => (code[i] ? (x < 0 ? -1 : 1) : 0));
  }

  function cosine(v, code) {
    const ones = code.filter(Boolean).length;
    return v.reduce((total, x, i) => total + (code[i] ? x : 0), 0) / Math.sqrt(ones) / Math.hypot(...v);
  }

  const differ = (v) => {
    const a = binarize(v),
      b = stopAtFirstDescent(v);
    return a.some((x, i) => x !== b[i]);
  };

  // Where S(K) = S(L) for some K, L while entry i, of value t, has its rank; and where it changes its rank.
  function breakpoints(v, i, top) {
    const others = descending(v.filter((_, j) => j !== i)),
      D = v.length;
    const sums = [0];
    for (const x of others) sums.push(sums.at(-1) + x);
    const found = [0, top, ...others];
    for (let rank = 1; rank <= D; rank++) {
      const high = rank > 1 ? others[rank - 2] : top,
        low = rank < D ? others[rank - 1] : 0;
      if (high <= low) continue;
      for (let K = 1; K <= D; K++) {
        for (let L = Math.max(K + 1, rank); L <= D; L++) {
          const inK = K >= rank ? 1 : 0; // entry i is among the L largest, and maybe among the K
          const slope = inK * Math.sqrt(L) - Math.sqrt(K);
          const t = (sums[L - 1] * Math.sqrt(K) - sums[K - inK] * Math.sqrt(L)) / slope;
          if (t > low && t < high) found.push(t);
        }
      }
    }
    return [...new Set(found)].filter((t) => t >= 0 && t <= top).sort((a, b) => a - b);
  }

  // The values of entry i at which stopping early gives another code: [low, high], ...
  function failingIntervals(v, i, top = 1) {
    const marks = breakpoints(v, i, top),
      found = [];
    for (let k = 0; k + 1 < marks.length; k++) {
      const changed = v.slice();
      changed[i] = (marks[k] + marks[k + 1]) / 2;
      if (!differ(changed)) continue;
      if (found.length && found.at(-1)[1] === marks[k]) found.at(-1)[1] = marks[k + 1];
      else found.push([marks[k], marks[k + 1]]);
    }
    return found;
  }

  // One entry with the share alpha of the squared norm, and a flat tail.
  function counterexample(alpha, D) {
    return [Math.sqrt(alpha), ...new Array(D - 1).fill(Math.sqrt((1 - alpha) / (D - 1)))];
  }

  // Stopping early fails on it exactly for low < alpha < high.
  function counterexampleInterval(D) {
    return [1 / (1 + (D - 1) * (Math.SQRT2 - 1) ** 2), (1 + 1 / Math.sqrt(D)) / 2];
  }

  // How the library's codes of a vector are computed, by name.
  const encode = {
    binary: (v) => (v.some((x) => x < 0) ? null : binarize(v)),
    ternary: ternarize,
    sign: (v) => v.map((x) => +(x > 0)),
  };

  return {
    encode,
    partialSums,
    bestK,
    firstDescent,
    binarize,
    stopAtFirstDescent,
    ternarize,
    cosine,
    failingIntervals,
    counterexample,
    counterexampleInterval,
  };
})();

brace.page("corner", (place) => {
  const { heads, make, show } = brace;
  const C = brace.corner;
  const state = { v: [], ternary: false, seed: 4, focus: 0 };
  const W = 360,
    H = 240,
    PAD = 26;

  const bars = make("svg", {
    viewBox: `0 0 ${W} ${H}`,
    role: "group",
    "aria-label": "The entries of the vector",
  });
  const chart = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
  const words = make("p", { class: "verdict-line" });
  const code = make("div", { class: "bits", role: "img" });
  const interval = make("p", { class: "hint" });
  const spoken = brace.announcer();

  const low = () => (state.ternary ? -1 : 0);
  const toY = (x) => PAD / 2 + ((1 - x) / (1 - low())) * (H - PAD);
  const slot = () => (W - 12) / state.v.length;

  function set(i, value) {
    const rounded = Math.round(value * 1000) / 1000;
    state.v[i] = Math.max(low(), Math.min(1, rounded));
    state.focus = i;
    update();
    spoken.say(`entry ${i + 1} is ${show(state.v[i], 2)}. ${words.textContent}`);
  }

  const STEPS = {
    ArrowUp: 0.01,
    ArrowRight: 0.01,
    ArrowDown: -0.01,
    ArrowLeft: -0.01,
    PageUp: 0.1,
    PageDown: -0.1,
  };

  function handle(i) {
    const node = make("g", {
      class: "bar",
      tabindex: 0,
      role: "slider",
      "aria-label": `Entry ${i + 1}`,
      "aria-valuemax": 1,
    });
    node.append(
      make("rect", { class: "touch", y: 0, height: H }),
      make("g", { class: "fails" }),
      make("rect", { class: "mark" }),
      make("rect", { class: "knob", height: 5, rx: 2 }),
      make("text", { y: H - 1, text: i + 1, "aria-hidden": true }),
    );
    node.addEventListener("keydown", (event) => {
      if (event.key === "Home" || event.key === "End") set(i, event.key === "Home" ? low() : 1);
      else if (event.key in STEPS) set(i, state.v[i] + STEPS[event.key]);
      else return;
      event.preventDefault();
    });
    const move = (event) => {
      const box = bars.getBoundingClientRect();
      const y = ((event.clientY - box.top) / box.height) * H;
      set(i, 1 - ((y - PAD / 2) / (H - PAD)) * (1 - low()));
    };
    node.addEventListener("pointerdown", move);
    brace.drag(node, move);
    node.addEventListener("focus", () => {
      state.focus = i;
      update();
    });
    return node;
  }

  function setVector(v) {
    state.v = v;
    state.focus = v.reduce((best, x, i) => (Math.abs(x) > Math.abs(v[best]) ? i : best), 0);
    bars.replaceChildren(make("line", { class: "axis", x1: 4, x2: W - 4 }), ...v.map((_, i) => handle(i)));
    update();
  }

  function drawBars(v, best) {
    const width = slot();
    bars.firstChild.setAttribute("y1", toY(0));
    bars.firstChild.setAttribute("y2", toY(0));
    const fails = C.failingIntervals(v, state.focus);
    [...bars.children].slice(1).forEach((node, i) => {
      const [touch, bands, mark, knob, text] = node.children,
        x = 6 + i * width,
        value = state.v[i];
      node.setAttribute("aria-valuemin", low());
      node.setAttribute("aria-valuenow", value);
      node.setAttribute(
        "aria-valuetext",
        `${show(value, 2)}, ${best[i] ? "in the code" : "not in the code"}`,
      );
      node.classList.toggle("on", best[i]);
      node.classList.toggle("focus", i === state.focus);
      for (const [name, number] of Object.entries({ x, width })) touch.setAttribute(name, number);
      const top = Math.min(toY(value), toY(0));
      for (const [name, number] of Object.entries({
        x: x + width * 0.2,
        width: width * 0.6,
        y: top,
        height: Math.max(1, Math.abs(toY(value) - toY(0))),
      }))
        mark.setAttribute(name, number);
      for (const [name, number] of Object.entries({
        x: x + width * 0.1,
        width: width * 0.8,
        y: toY(value) - 2.5,
      }))
        knob.setAttribute(name, number);
      text.setAttribute("x", x + width / 2);
      const shown =
        i === state.focus
          ? fails.flatMap(([a, b]) =>
              state.ternary
                ? [
                    [a, b],
                    [-b, -a],
                  ]
                : [[a, b]],
            )
          : [];
      bands.replaceChildren(
        ...shown.map(([a, b]) => make("rect", { x, width, y: toY(b), height: Math.max(1, toY(a) - toY(b)) })),
      );
    });
    return fails;
  }

  function drawChart(v, K, stop) {
    const S = C.partialSums(v).map((x) => x / (Math.hypot(...v) || 1)),
      D = S.length;
    const x = (k) => 34 + ((k - 1) / Math.max(1, D - 1)) * (W - 50);
    const floor = Math.max(0, Math.min(...S) - 0.06);
    const y = (s) => 24 + ((1 - s) / (1 - floor)) * (H - 58);
    const nodes = [];
    for (const s of [floor, (1 + floor) / 2, 1]) {
      nodes.push(
        make("line", { class: "grid", x1: 34, x2: W - 10, y1: y(s), y2: y(s) }),
        make("text", { class: "tick", x: 30, y: y(s) + 3, "text-anchor": "end", text: show(s, 2) }),
      );
    }
    nodes.push(
      make("polyline", { class: "curve", points: S.map((s, k) => `${x(k + 1)},${y(s)}`).join(" ") }),
    );
    for (const [k, s] of S.entries())
      nodes.push(
        make("circle", {
          class: k + 1 === K ? "best" : k + 1 === stop ? "stop" : "point",
          cx: x(k + 1),
          cy: y(s),
          r: k + 1 === K || k + 1 === stop ? 6 : 3,
        }),
      );
    const every = D > 10 ? 2 : 1;
    for (let k = 1; k <= D; k += every)
      nodes.push(make("text", { class: "tick", x: x(k), y: H - 18, "text-anchor": "middle", text: k }));
    nodes.push(
      make("text", { class: "tick", x: W / 2, y: H - 3, "text-anchor": "middle", text: "K, entries kept" }),
    );
    nodes.push(
      make("text", {
        class: "tick title",
        x: 6,
        y: 12,
        text: "S(K) over the length: cosine to the best code with K ones",
      }),
    );
    chart.replaceChildren(...nodes);
    chart.setAttribute("aria-label", `S of K: ${S.map((s, k) => `${k + 1}: ${show(s, 2)}`).join(", ")}`);
  }

  function update() {
    const v = state.ternary ? state.v.map(Math.abs) : state.v;
    if (v.every((x) => x === 0)) {
      words.textContent = "The zero vector points nowhere: it has no code.";
      words.className = "verdict-line bad";
      drawBars(
        v,
        v.map(() => false),
      );
      chart.replaceChildren();
      code.replaceChildren();
      return;
    }
    const K = C.bestK(v),
      stop = C.firstDescent(v);
    const best = C.binarize(v),
      early = C.stopAtFirstDescent(v);
    const fails = best.some((b, i) => b !== early[i]);
    const [good, bad] = [C.cosine(v, best), C.cosine(v, early)];
    const instead = fails ? `keeps ${stop}: cosine ${show(bad)}, which is wrong` : "finds the same code";
    words.textContent = `Keep ${K}: cosine ${show(good)}. Stopping at the first descent ${instead}.`;
    words.className = fails ? "verdict-line bad" : "verdict-line good";
    const shown = state.ternary ? C.ternarize(state.v).map(sign) : best.map(digit);
    listCodes();
    code.replaceChildren(...shown.map((bit, i) => make("span", { class: best[i] ? "on" : "", text: bit })));
    code.setAttribute("aria-label", `The code: ${shown.join(" ")}`);
    const found = drawBars(v, best);
    const parts = found.map(([a, b]) => `${show(a, 4)} to ${show(b, 4)}`);
    const share = Math.max(...v) ** 2 / v.reduce((total, x) => total + x * x, 0);
    const [from, to] = C.counterexampleInterval(v.length);
    interval.textContent =
      `Entry ${state.focus + 1}, the others as they are: stopping early fails ` +
      (parts.length
        ? `exactly between ${parts.join(", and between ")} (the red bands).`
        : "nowhere between 0 and 1.") +
      ` The largest entry holds ${show(100 * share, 1)} % of the squared length; with a flat tail ` +
      `in ${v.length} dimensions the rule fails between ${show(100 * from, 1)} % and ${show(100 * to, 1)} %.`;
    drawChart(v, K, stop);
  }

  // --- every code of the library
  const sign = (s) => (s > 0 ? "+" : s < 0 ? "−" : "0");
  const digit = (b) => (b ? "1" : "0");
  const listed = make("tbody");

  function listCodes() {
    const rows = Object.entries(brace.registries.codes).map(([name, { title, formula }]) => {
      const found = C.encode[name]?.(state.v);
      const bits = found?.map(found.some((b) => b < 0) ? sign : digit).join(" ");
      const text = bits || (C.encode[name] ? "not for negative entries" : brace.ELSEWHERE);
      const head = make("th", { scope: "row" }, title, make("code", { text: name }));
      const cell = make("td", { class: bits ? "formula code" : "quiet", text });
      return make("tr", { "data-name": name }, head, make("td", { class: "formula", text: formula }), cell);
    });
    listed.replaceChildren(...rows);
  }
  const codes = make(
    "table",
    { class: "values" },
    make("caption", { text: "Codes of this vector" }),
    heads(["code", "", "bits"]),
    listed,
  );

  // --- controls
  const drawn = (D, seed, signed) => {
    const { normal } = brace.random(seed);
    const v = Array.from({ length: D }, () => Math.exp(0.8 * normal()) * (signed && normal() < 0 ? -1 : 1));
    const top = Math.max(...v.map(Math.abs)) * 1.05;
    return v.map((x) => Math.round((x / top) * 1000) / 1000);
  };
  const dims = brace.slider("entries, D", { min: 2, max: 16, value: 8 }, (D) =>
    setVector(drawn(D, state.seed, state.ternary)),
  );
  const flat = () => {
    const D = state.v.length,
      [from, to] = C.counterexampleInterval(D),
      v = C.counterexample((from + to) / 2, D);
    const top = v[0] * 1.3;
    setVector(v.map((x) => Math.round((x / top) * 1000) / 1000));
  };
  const ternary = brace.check("ternary: signs are kept", false, (yes) => {
    state.ternary = yes;
    setVector(yes ? drawn(state.v.length, state.seed, true) : state.v.map(Math.abs));
  });
  const controls = make(
    "div",
    { class: "controls" },
    dims,
    brace.button("new vector", () => setVector(drawn(state.v.length, ++state.seed, state.ternary))),
    brace.button("where stopping early fails", flat),
    ternary,
  );
  const hint = make("p", {
    class: "hint",
    text:
      "Drag a bar, or press Tab and use the arrow keys (Page up and down: larger steps). " +
      "Filled bars are the ones of the code.",
  });
  const key = make(
    "p",
    { class: "hint" },
    make("span", { class: "key best" }),
    " the best K  ",
    make("span", { class: "key stop" }),
    " where stopping at the first descent ends, if it is wrong",
  );
  place.replaceChildren(
    controls,
    words,
    make(
      "div",
      { class: "two even" },
      make("div", { class: "stage" }, bars, code, hint),
      make("div", { class: "stage" }, chart, key),
    ),
    interval,
    make("div", { class: "scroll" }, codes),
    spoken,
  );
  setVector(drawn(8, state.seed, false));
});
