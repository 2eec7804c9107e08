// The cube of all tuples of n batches of B rows, its regions, and which cells a loss looks at (thesis, 5.4).
"use strict";

brace.regions = (() => {
  // --- mathematics: as brace_nb.ndim has it; all counts are below 2^53

  // Ways of writing n with at most `parts` terms, largest first.
  function partitions(n, parts = n, largest = n) {
    if (n === 0) return [[]];
    if (parts === 0) return [];
    const found = [];
    for (let k = Math.min(n, largest); k > 0; k--) {
      for (const rest of partitions(n - k, parts - 1, k)) found.push([k, ...rest]);
    }
    return found;
  }

  const counts = (items) => {
    const found = new Map();
    for (const x of items) found.set(x, (found.get(x) || 0) + 1);
    return [...found.values()];
  };

  // The region of one cell: how often each of its coordinates occurs, largest first.
  const regionOf = (index) => counts(index).sort((a, b) => b - a);

  const factorial = (n) => (n < 2 ? 1 : n * factorial(n - 1));
  const product = (xs) => xs.reduce((a, b) => a * b, 1);

  // Deal the axes to parts, give each part an item, and do not tell parts of equal size apart.
  function regionSize(partition, n, B) {
    const deals = factorial(n) / product(partition.map(factorial));
    const items = product(partition.map((_, k) => B - k));
    return (deals * items) / product(counts(partition).map(factorial));
  }

  // The thesis's label of a region: sum of count^m.
  const maskValue = (partition, m) => partition.reduce((total, c) => total + c ** m, 0);

  // The smallest exponent for which no two regions share a label.
  function safeExponent(n) {
    const all = partitions(n);
    for (let m = 1; ; m++) if (new Set(all.map((p) => maskValue(p, m))).size === all.length) return m;
  }

  // Share of the cells in which at least two coordinates agree.
  function collisionProbability(n, B) {
    return 1 - product(Array.from({ length: n }, (_, k) => (B - k) / B));
  }

  // Scores that receive gradient under one-hot labels, by kind of loss.
  const gradientCells = {
    pairs: (n, B) => ((n * (n - 1)) / 2) * B ** 2,
    axis: (n, B) => B + (n > 2 ? n : 1) * B * (B - 1),
    slice: (n, B) => B ** n,
    sigmoid: (n, B) => B ** n,
  };

  return { gradientCells, partitions, regionOf, regionSize, maskValue, safeExponent, collisionProbability };
})();

brace.page("regions", (place) => {
  const { heads, make, show } = brace;
  const R = brace.regions;
  const state = { n: 3, B: 6, rest: [0, 0, 0], cell: null, lit: null };
  const canvas = make("canvas", {
    tabindex: 0,
    role: "application",
    "aria-roledescription": "slices of the cube",
  });
  const where = make("p", { class: "hint" });
  const rows = make("tbody");
  const caption = make("caption");
  const bar = make("div", { class: "shares plain", role: "img" });
  const kinds = make("tbody");
  const spoken = brace.announcer();
  const sliders = make("div", { class: "controls" });
  let layout = null;

  const name = (partition) => partition.join(" + ");
  const words = (partition) => {
    if (partition.length === 1) return "all of one tuple: the diagonal";
    if (partition[0] === 1) return "all of different tuples";
    return `${partition
      .filter((c) => c > 1)
      .map((c) => `${c} of one tuple`)
      .join(", ")}${partition.includes(1) ? `, ${partition.filter((c) => c === 1).length} alone` : ""}`;
  };

  // The colors of the regions: the diagonal first, the cells of strangers last.
  function colors(many) {
    const first = ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9"].slice(0, many - 1);
    return [...first, "rlast"].map((c) => brace.color(c));
  }

  const key = (partition) => partition.join(",");
  const slices = () => (state.n > 2 ? state.B : 1);
  const indexOf = (i, j, k) => [
    i,
    j,
    ...(state.n > 2 ? [k] : []),
    ...state.rest.slice(0, Math.max(0, state.n - 3)),
  ];

  function draw() {
    const { n, B } = state,
      width = Math.max(240, canvas.parentElement.clientWidth);
    const many = slices(),
      gap = 10;
    const across = many === 1 ? 1 : Math.max(1, Math.min(many, Math.floor(width / Math.max(84, B * 10))));
    const side = Math.min(many === 1 ? 320 : 200, (width - gap * (across - 1)) / across),
      unit = side / B;
    const label = many > 1 ? 16 : 0,
      down = Math.ceil(many / across);
    layout = { across, side, unit, label, gap };
    const c = brace.fit(canvas, width, down * (side + label + gap));
    const all = R.partitions(n, Math.min(n, B)),
      shades = colors(all.length);
    const place = new Map(all.map((p, k) => [key(p), k]));
    c.font = "11px sans-serif";
    for (let k = 0; k < many; k++) {
      const x0 = (k % across) * (side + gap),
        y0 = Math.floor(k / across) * (side + label + gap) + label;
      if (label) {
        c.fillStyle = brace.color("text");
        c.fillText(`third = ${k + 1}`, x0, y0 - 4);
      }
      for (let i = 0; i < B; i++)
        for (let j = 0; j < B; j++) {
          const region = key(R.regionOf(indexOf(i, j, k)));
          c.globalAlpha = state.lit && state.lit !== region ? 0.15 : 1;
          c.fillStyle = shades[place.get(region)];
          c.fillRect(x0 + j * unit + 0.5, y0 + i * unit + 0.5, Math.max(1, unit - 1), Math.max(1, unit - 1));
        }
      c.globalAlpha = 1;
      if (state.cell && state.cell[2] === k) {
        c.lineWidth = 2.5;
        c.strokeStyle = brace.color("text");
        c.strokeRect(x0 + state.cell[1] * unit, y0 + state.cell[0] * unit, unit, unit);
      }
    }
  }

  function list() {
    const { n, B } = state,
      all = R.partitions(n, Math.min(n, B)),
      shades = colors(all.length);
    const total = B ** n,
      m = R.safeExponent(n);
    caption.textContent =
      `${all.length} regions of ${total.toLocaleString("en")} cells; labels are sums of counts ` +
      `to the power ${m}, the least that tells all regions of n = ${n} apart`;
    rows.replaceChildren(
      ...all.map((p, k) => {
        const size = R.regionSize(p, n, B),
          id = key(p);
        const light = (on) => () => {
          state.lit = on ? id : null;
          draw();
        };
        const row = make(
          "tr",
          {
            "data-region": id,
            tabindex: 0,
            onpointerenter: light(true),
            onpointerleave: light(false),
            onfocus: light(true),
            onblur: light(false),
          },
          make("td", {}, make("span", { class: "swatch", style: `background:${shades[k]}` })),
          make("th", { scope: "row", text: name(p) }),
          make("td", { text: words(p) }),
          make("td", { class: "number", text: size.toLocaleString("en") }),
          make("td", { class: "number", text: `${show((100 * size) / total, 2)} %` }),
          make("td", { class: "number", text: R.maskValue(p, m).toLocaleString("en") }),
        );
        return row;
      }),
    );
    kinds.replaceChildren(
      ...Object.entries(brace.registries.losses).map(([kind, loss]) => {
        const count = R.gradientCells[kind]?.(n, B).toLocaleString("en");
        const head = make(
          "th",
          { scope: "row", title: loss.source },
          loss.title,
          make("code", { text: kind }),
        );
        const formula = make("td", { class: "formula", text: loss.formula });
        const cells = make("td", { class: count ? "number" : "quiet", text: count || brace.ELSEWHERE });
        return make("tr", { "data-name": kind }, head, formula, cells);
      }),
    );
    bar.replaceChildren(
      ...all.map((p, k) => {
        const share = R.regionSize(p, n, B) / total;
        return make("span", {
          style: `flex:${share};background:${shades[k]}`,
          title: `${name(p)}: ${show(100 * share, 2)} %`,
        });
      }),
    );
    const shares = all.map((p) => `${name(p)} ${show((100 * R.regionSize(p, n, B)) / total, 2)} %`);
    bar.setAttribute("aria-label", `Shares: ${shares.join(", ")}`);
  }

  function say() {
    if (!state.cell) {
      const share = show(100 * R.collisionProbability(state.n, state.B), 1);
      where.textContent =
        `In ${share} % of the cells at least two coordinates agree. Point at a cell, ` +
        "or press Tab and use the arrow keys (Page up and down: the next slice).";
      return;
    }
    const index = indexOf(...state.cell),
      region = R.regionOf(index);
    const cell = index.map((i) => i + 1).join(", ");
    where.textContent = `Cell (${cell}): region ${name(region)}, ${words(region)}.`;
    canvas.setAttribute("aria-label", where.textContent);
    for (const row of rows.children) row.classList.toggle("lit", row.dataset.region === key(region));
    spoken.say(where.textContent);
  }

  function reset() {
    state.cell = null;
    sliders.replaceChildren(
      ...Array.from({ length: Math.max(0, state.n - 3) }, (_, k) => {
        state.rest[k] = Math.min(state.rest[k], state.B - 1);
        return brace.slider(
          `coordinate ${k + 4}`,
          { min: 1, max: state.B, value: state.rest[k] + 1 },
          (value) => {
            state.rest[k] = value - 1;
            draw();
            say();
          },
        );
      }),
    );
    canvas.setAttribute(
      "aria-label",
      `Slices of the cube of n = ${state.n} batches of ${state.B} rows; arrow keys move a cell`,
    );
    list();
    draw();
    say();
  }

  const point = (event) => {
    const box = canvas.getBoundingClientRect(),
      { across, side, unit, label, gap } = layout;
    const x = event.clientX - box.left,
      y = event.clientY - box.top;
    const col = Math.floor(x / (side + gap)),
      row = Math.floor(y / (side + label + gap));
    const j = Math.floor((x - col * (side + gap)) / unit),
      i = Math.floor((y - row * (side + label + gap) - label) / unit);
    const k = row * across + col;
    const inside = col < across && k < slices() && i >= 0 && j >= 0 && i < state.B && j < state.B;
    state.cell = inside ? [i, j, k] : null;
    draw();
    say();
  };
  canvas.addEventListener("pointerdown", point); // a finger that taps does not move
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "touch") return; // what was tapped stays
    state.cell = null;
    draw();
    say();
  });
  const STEPS = {
    ArrowUp: [-1, 0, 0],
    ArrowDown: [1, 0, 0],
    ArrowLeft: [0, -1, 0],
    ArrowRight: [0, 1, 0],
    PageUp: [0, 0, -1],
    PageDown: [0, 0, 1],
  };
  canvas.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const limits = [state.B, state.B, slices()];
    state.cell = (state.cell || [0, 0, 0]).map((x, k) => Math.max(0, Math.min(limits[k] - 1, x + step[k])));
    draw();
    say();
  });

  const controls = make(
    "div",
    { class: "controls" },
    brace.slider("batches, n", { min: 2, max: 6, value: 3 }, (n) => {
      state.n = n;
      reset();
    }),
    brace.slider("rows in each, B", { min: 2, max: 12, value: 6 }, (B) => {
      state.B = B;
      reset();
    }),
  );
  const columns = ["", "region", "which cells", "cells", "share", "label"];
  const table = make("table", { class: "values" }, caption, heads(columns), rows);
  const losses = make(
    "table",
    { class: "values" },
    make("caption", { text: "Cells whose score receives gradient, by kind of loss" }),
    heads(["loss", "", "cells"]),
    kinds,
  );
  place.replaceChildren(
    controls,
    sliders,
    bar,
    make(
      "div",
      { class: "two regions" },
      make("div", { class: "stage" }, make("div", {}, canvas), where),
      make("div", { class: "scroll" }, table, losses),
    ),
    spoken,
  );
  reset();
  brace.redraw(canvas.parentElement, () => {
    list();
    draw();
  });
});
