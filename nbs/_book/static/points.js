// Points in the plane: all measures of n vectors, and the statistics of Table A.1 (thesis, appendix A).
"use strict";

brace.points = (() => {
  // --- mathematics: points are arrays [x, y]; as brace_nb.ndim has it, in float64

  const dot = (a, b) => a[0] * b[0] + a[1] * b[1];
  const root = (x) => Math.sqrt(Math.max(x, 0));

  // Points at distance 1 from the origin, in the same directions.
  function unit(points) {
    return points.map(([x, y]) => {
      const top = Math.max(Math.abs(x), Math.abs(y));
      const size = Math.hypot(x / top, y / top);
      return [x / top / size, y / top / size];
    });
  }

  // Sums over points: s, q and a for each coordinate, P = |s|^2, Q = sum of squares.
  function sums(points) {
    const s = [0, 0],
      q = [0, 0],
      a = [0, 0];
    for (const p of points)
      for (const f of [0, 1]) {
        s[f] += p[f];
        q[f] += p[f] * p[f];
        a[f] += Math.abs(p[f]);
      }
    return { s, q, a, P: dot(s, s), Q: q[0] + q[1], n: points.length, F: 2 };
  }

  const over = (t, each) => each(t.s[0], t.q[0], t.a[0], t.n) + each(t.s[1], t.q[1], t.a[1], t.n);
  const spread = (s, q, a, n) => root(q - (s * s) / n);
  const hypotenuse = (mean, q, n) => mean - (root(q) - Math.sqrt(n) * Math.abs(mean));

  // Each point against the direction of the rest; a rest that is zero up to rounding scores 0.
  function leaveOneOut(points) {
    const size = Math.max(...points.map((p) => dot(p, p)));
    let total = 0;
    points.forEach((p, a) => {
      const rest = [0, 0];
      points.forEach((o, b) => {
        if (a !== b) {
          rest[0] += o[0];
          rest[1] += o[1];
        }
      });
      const length = dot(rest, rest);
      if (length > 8 * Number.EPSILON * size) total += dot(p, rest) / Math.sqrt(length);
    });
    return total;
  }

  // Square root of the determinant of the inner products; more than two vectors of a plane have none.
  function volume(points) {
    if (points.length > 2) return 0;
    const [u, v] = points;
    return Math.abs(u[0] * v[1] - u[1] * v[0]);
  }

  function area([a, b, c]) {
    return Math.abs((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])) / 2;
  }

  // Largest singular value of the n x 2 matrix.
  function singular(points) {
    let xx = 0,
      yy = 0,
      xy = 0;
    for (const [x, y] of points) {
      xx += x * x;
      yy += y * y;
      xy += x * y;
    }
    return root((xx + yy) / 2 + Math.hypot((xx - yy) / 2, xy));
  }

  function product(points) {
    return [0, 1].reduce((total, f) => total + points.reduce((value, p) => value * p[f], 1), 0);
  }

  const sst = (t) => t.Q - t.P / t.n;
  // How the measures of the library are computed, by name: of points and their sums.
  const compute = {
    sst_sum: (p, t) => 1 - sst(t),
    l2norm: (p, t) => 1 - over(t, spread),
    mean_cosine: (p, t) => root(t.P) / t.n,
    rms_feature: (p, t) => 1 - over(t, spread) / t.F,
    sst_l2: (p, t) => 1 - root(over(t, (s, q, a, n) => Math.max(q - (s * s) / n, 0) ** 2)),
    norm_sum: (p, t) => 1 - over(t, (s, q) => root(q)),
    sst: (p, t) => 1 - sst(t),
    sst_root: (p, t) => 1 - root(sst(t)),
    sst_abs: (p, t) => 1 - sst(t),
    sst_feature: (p, t) => t.F - sst(t),
    mean_norm_sq: (p, t) => root(t.P) / t.n ** 2,
    sum_norm: (p, t) => root(t.P),
    mean_norm: (p, t) => root(t.P) / t.n,
    mean_dot: (p, t) => root(t.P),
    leave_one_out: leaveOneOut,
    delta_h: (p, t) => over(t, (s, q, a, n) => hypotenuse(s / n, q, n)),
    delta_h_abs: (p, t) => over(t, (s, q, a, n) => hypotenuse(a / n, q, n)),
    einsum: product,
    pairwise: (p, t) => (t.P - t.Q) / (t.n * (t.n - 1)),
    symile: product,
    gram_volume: (p) => -volume(p),
    triangle: (p) => -area(p),
    pmrl: singular,
  };

  // Name -> value of every measure that is computed here; null where it is not defined for n points.
  function measures(points, normalized = false) {
    const p = normalized ? unit(points) : points;
    const t = sums(p);
    const known = Object.entries(brace.registries.measures).filter(([name]) => compute[name]);
    const fits = ({ only }) => only == null || only === p.length;
    return Object.fromEntries(known.map(([name, m]) => [name, fits(m) ? compute[name](p, t) : null]));
  }

  // Power mean with signed powers unless p is even.
  function powerMean(values, p) {
    const size = Math.max(...values.map(Math.abs), Number.MIN_VALUE);
    let total = 0;
    for (const x of values) total += Math.abs(x / size) ** p * (p % 2 === 0 ? 1 : Math.sign(x));
    const mean = total / values.length;
    return Math.sign(mean) * Math.abs(mean) ** (1 / p) * size;
  }

  function variance(values) {
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    return values.reduce((total, x) => total + (x - mean) ** 2, 0) / values.length;
  }

  const summarize = {
    mean: (v) => v.reduce((a, b) => a + b, 0) / v.length,
    l2mean: (v) => powerMean(v, 2),
    l3mean: (v) => powerMean(v, 3),
    dynmean: (v) => powerMean(v, v.length),
    lsqrtmean: (v) => powerMean(v, 0.5),
    std: (v) => Math.sqrt(variance(v)),
    variance,
  };

  // Table A.1: name -> [of x, of y] of every statistic that is computed here.
  function statistics(points) {
    const [x, y] = [0, 1].map((k) => points.map((p) => p[k]));
    const known = Object.keys(brace.registries.statistics).filter((name) => summarize[name]);
    return Object.fromEntries(known.map((name) => [name, [summarize[name](x), summarize[name](y)]]));
  }

  // n points around a direction: `width` is the spread of angles and lengths.
  function around(n, width, seed) {
    const { uniform } = brace.random(seed);
    return Array.from({ length: n }, (_, k) => {
      const angle = 0.7 + width * Math.PI * ((2 * (k + uniform())) / n - 1);
      const length = 0.75 + 0.2 * Math.min(width, 1) * (2 * uniform() - 1);
      return [length * Math.cos(angle), length * Math.sin(angle)];
    });
  }

  return { measures, statistics, unit, around };
})();

brace.page("points", (place) => {
  const { heads, make } = brace;
  const show = (x, digits = 3) =>
    x && Math.abs(x) < 5e-4 && digits === 3 ? x.toExponential(0).replace(/-/g, "−") : brace.show(x, digits);
  const { measures, statistics, unit, around } = brace.points;
  const REACH = 1.25; // the plane shown is [-REACH, REACH] on both axes
  const state = { points: around(12, 1, 3), normalized: false, kept: null, seed: 3 };
  state.kept = measures(state.points);

  // --- the plane
  const svg = make("svg", {
    viewBox: "-125 -125 250 250",
    role: "group",
    "aria-label": "The plane with the points",
  });
  const grid = make("g", { class: "grid" });
  for (let k = -1; k <= 1; k += 0.5) {
    grid.append(make("line", { x1: 100 * k, x2: 100 * k, y1: -125, y2: 125, class: k ? "" : "axis" }));
    grid.append(make("line", { y1: 100 * k, y2: 100 * k, x1: -125, x2: 125, class: k ? "" : "axis" }));
  }
  grid.append(make("circle", { r: 100, class: "unit" }));
  const arms = make("g", { class: "arms" });
  const mean = make("circle", { r: 3.4, class: "mean" });
  const dots = make("g");
  svg.append(grid, arms, mean, dots);

  function moved(k, x, y) {
    const clip = (v) => Math.max(-REACH, Math.min(REACH, v));
    state.points[k] = [clip(x), clip(y)];
    update();
    spoken.say(`point ${k + 1} at ${show(state.points[k][0], 2)}, ${show(state.points[k][1], 2)}`);
  }

  function toPlane(event) {
    const box = svg.getBoundingClientRect();
    const scale = (2 * REACH) / box.width;
    return [(event.clientX - box.left) * scale - REACH, REACH - (event.clientY - box.top) * scale];
  }

  const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

  function dot(k) {
    const node = make("g", { class: "dot", tabindex: 0, role: "slider", "aria-label": `Point ${k + 1}` });
    node.append(make("circle", { r: 12, class: "touch" }), make("circle", { r: 5.2, class: "mark" }));
    node.append(make("text", { text: k + 1, "aria-hidden": true }));
    node.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step) return;
      event.preventDefault();
      const size = event.shiftKey ? 0.1 : 0.02;
      moved(k, state.points[k][0] + size * step[0], state.points[k][1] + size * step[1]);
    });
    brace.drag(node, (event) => moved(k, ...toPlane(event)));
    return node;
  }

  // --- the tables: an entry of the library that has no computation here is told of all the same
  const number = () => make("td", { class: "number" });
  const only = (colspan) => make("td", { class: "quiet", colspan, text: brace.ELSEWHERE });

  const rows = {};
  const body = make("tbody");
  const computed = measures(state.points);
  for (const [name, m] of Object.entries(brace.registries.measures)) {
    const cells = [number(), number(), make("td")];
    if (name in computed) rows[name] = cells;
    body.append(
      make(
        "tr",
        { "data-name": name },
        make("td", { text: m.row ? `row ${m.row}` : "peer", class: "quiet", title: m.source }),
        make("th", { scope: "row" }, make("span", { text: m.title }), make("code", { text: name })),
        make("td", { text: m.formula, class: "formula" }),
        ...(name in computed ? cells : [only(3)]),
      ),
    );
  }
  const table = make(
    "table",
    { class: "values measures" },
    make("caption", { text: "Measures of Figure 5.9, and of others. Higher is more alike." }),
    heads(["", "measure", "formula", "now", "kept", "change"]),
    body,
  );
  const cells = {};
  const second = make("tbody");
  for (const [name, s] of Object.entries(brace.registries.statistics)) {
    cells[name] = [number(), number()];
    const shown = name in statistics(state.points) ? cells[name] : [only(2)];
    second.append(make("tr", {}, make("th", { scope: "row", text: name, title: s.formula }), ...shown));
  }
  const statisticsTable = make(
    "table",
    { class: "values" },
    make("caption", { text: "Statistics of Table A.1, by coordinate" }),
    heads(["statistic", "x", "y"]),
    second,
  );

  // --- controls
  const spoken = brace.announcer();
  function setPoints(points) {
    state.points = points;
    dots.replaceChildren(...points.map((_, k) => dot(k)));
    update();
  }
  const count = brace.slider("points, n", { min: 2, max: 12, value: 12 }, (n) => {
    const more = around(12, 1, ++state.seed);
    setPoints([...state.points.slice(0, n), ...more.slice(state.points.length, n)]);
    keep();
  });
  function keep() {
    state.kept = measures(state.points, state.normalized);
    update();
  }
  const controls = make(
    "div",
    { class: "controls" },
    count,
    brace.button("apart", () => setPoints(around(state.points.length, 1, ++state.seed)), {
      title: "As in Figure A.1",
    }),
    brace.button("together", () => setPoints(around(state.points.length, 0.06, ++state.seed)), {
      title: "As in Figure A.2",
    }),
    brace.button("opposite", () => setPoints(state.points.map(([x, y]) => [-x, -y])), {
      title: "Every point through the origin",
    }),
    brace.button("keep these values", keep),
    brace.check("unit length", false, (yes) => {
      state.normalized = yes;
      keep();
    }),
  );

  function update() {
    const zero = state.normalized && state.points.some(([x, y]) => x === 0 && y === 0);
    const used = zero ? state.points : state.normalized ? unit(state.points) : state.points;
    [...dots.children].forEach((node, k) => {
      const [x, y] = state.points[k];
      node.setAttribute("transform", `translate(${100 * x} ${-100 * y})`);
      node.setAttribute("aria-valuetext", `${show(x, 2)}, ${show(y, 2)}`);
      node.setAttribute("aria-valuenow", show(Math.hypot(x, y), 2));
    });
    arms.replaceChildren(...used.map(([x, y]) => make("line", { x2: 100 * x, y2: -100 * y })));
    const m = used.reduce(
      (total, p) => [total[0] + p[0] / used.length, total[1] + p[1] / used.length],
      [0, 0],
    );
    mean.setAttribute("cx", 100 * m[0]);
    mean.setAttribute("cy", -100 * m[1]);
    const values = zero ? {} : measures(state.points, state.normalized);
    for (const [name, [now, before, change]] of Object.entries(rows)) {
      const difference = values[name] - state.kept[name];
      now.textContent = show(values[name]);
      before.textContent = show(state.kept[name]);
      const moves = Math.abs(difference) > 1e-3 * Math.abs(state.kept[name]) && Math.abs(difference) > 1e-9;
      change.textContent = moves ? (difference > 0 ? "▲ rises" : "▼ falls") : "";
      change.className = moves ? (difference > 0 ? "up" : "down") : "";
    }
    for (const [name, [x, y]] of Object.entries(statistics(state.points))) {
      cells[name][0].textContent = show(x);
      cells[name][1].textContent = show(y);
    }
  }

  const legend = make(
    "p",
    { class: "hint" },
    "Drag a point, or press Tab and move it with the arrow keys (Shift: larger steps). " +
      "The green point is the mean.",
  );
  place.replaceChildren(
    controls,
    make(
      "div",
      { class: "two" },
      make("div", { class: "stage" }, svg, legend, statisticsTable),
      make("div", { class: "scroll" }, table),
    ),
    spoken,
  );
  setPoints(state.points);
});
