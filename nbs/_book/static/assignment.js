// Linear sum assignment: all methods of the library on one matrix, in its formats (thesis, appendix C).
"use strict";

brace.assignment = (() => {
  // --- mathematics, as brace_nb.assignment has it: matrices are arrays of rows; of scores more is better

  const f32 = Math.fround;
  const { formats, methods, presets, distributions } = brace.registries;

  const roundEven = (x) => {
    const low = Math.floor(x),
      rest = x - low;
    return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
  };

  // The exponent e of |x| = m 2^e with m in [1/2, 1); 0 for 0.
  function exponentOf(x) {
    if (x === 0) return 0;
    let e = Math.floor(Math.log2(Math.abs(x))) + 1;
    while (Math.abs(x) >= 2 ** e) e += 1;
    while (Math.abs(x) < 2 ** (e - 1)) e -= 1;
    return e;
  }

  // The nearest value of a format; ties go to the even neighbor, too large becomes the largest.
  function quantize(x, format) {
    const { mantissa, step, top } = formats[format];
    const value = Math.max(-top, Math.min(top, f32(x)));
    if (value === 0) return value;
    const unit = Math.max(step, 2 ** (exponentOf(value) - 1 - mantissa));
    return Math.max(-top, Math.min(top, roundEven(value / unit) * unit));
  }

  const each = (matrix, change) => matrix.map((row, i) => row.map((x, j) => change(x, i, j)));
  const turn = (matrix) => matrix[0].map((_, j) => matrix.map((row) => row[j]));
  const byRow = (pairs) => pairs.slice().sort((a, b) => a[0] - b[0] || a[1] - b[1]);

  // Slices (the short lines) as rows, and whether the matrix was turned for it.
  function shortFirst(s) {
    const flip = s.length >= s[0].length;
    return [flip ? turn(s) : s, flip];
  }

  const pairsOf = (found, flip) =>
    byRow(found.map((j, i) => (flip ? [j, i] : [i, j])).filter(([i, j]) => i >= 0 && j >= 0));

  // Shortest augmenting paths with prices (Jonker and Volgenant; float64).
  function exact(s) {
    const flip = s.length > s[0].length;
    const a = flip ? turn(s) : s;
    const n = a.length,
      m = a[0].length;
    const u = new Float64Array(n + 1),
      v = new Float64Array(m + 1),
      owner = new Int32Array(m + 1),
      way = new Int32Array(m + 1);
    for (let i = 1; i <= n; i++) {
      const least = new Float64Array(m + 1).fill(Infinity),
        used = new Uint8Array(m + 1);
      let j0 = 0;
      owner[0] = i;
      do {
        used[j0] = 1;
        let delta = Infinity,
          j1 = 0;
        for (let j = 1; j <= m; j++) {
          if (used[j]) continue;
          const cost = -a[owner[j0] - 1][j - 1] - u[owner[j0]] - v[j];
          if (cost < least[j]) {
            least[j] = cost;
            way[j] = j0;
          }
          if (least[j] < delta) {
            delta = least[j];
            j1 = j;
          }
        }
        for (let j = 0; j <= m; j++) {
          if (used[j]) {
            u[owner[j]] += delta;
            v[j] -= delta;
          } else least[j] -= delta;
        }
        j0 = j1;
      } while (owner[j0]);
      do {
        const j1 = way[j0];
        owner[j0] = owner[j1];
        j0 = j1;
      } while (j0);
    }
    const found = [];
    for (let j = 1; j <= m; j++)
      if (owner[j]) found.push(flip ? [j - 1, owner[j] - 1] : [owner[j] - 1, j - 1]);
    return byRow(found);
  }

  // The slice with most to lose (best minus second best live cell) takes its best live cell.
  function greedyDelta(s) {
    const [a, flip] = shortFirst(s);
    const found = a.map(() => -1),
      taken = new Set();
    for (let step = 0; step < a.length; step++) {
      let chosen = -1,
        cell = -1,
        top = -1;
      a.forEach((line, i) => {
        if (found[i] >= 0) return;
        let first = -Infinity,
          second = -Infinity,
          at = -1;
        line.forEach((x, j) => {
          if (taken.has(j)) return;
          if (x > first) [second, first, at] = [first, x, j];
          else if (x > second) second = x;
        });
        const lead = f32(first - second);
        if (lead > top) [chosen, cell, top] = [i, at, lead];
      });
      found[chosen] = cell;
      taken.add(cell);
    }
    return pairsOf(found, flip);
  }

  // The best live cell, again and again; the first of equals in reading order.
  function greedyBest(s) {
    const rows = new Set(),
      cols = new Set(),
      found = [];
    for (let step = Math.min(s.length, s[0].length); step > 0; step--) {
      let best = null;
      s.forEach((line, i) => {
        if (!rows.has(i))
          line.forEach((x, j) => {
            if (!cols.has(j) && (!best || x > best[2])) best = [i, j, x];
          });
      });
      rows.add(best[0]);
      cols.add(best[1]);
      found.push([best[0], best[1]]);
    }
    return byRow(found);
  }

  const argmax = (line) => line.reduce((best, x, j) => (x > line[best] ? j : best), 0);

  // The best cell of every short line; two may take the same.
  function argbest(s) {
    const [a, flip] = shortFirst(s);
    return pairsOf(a.map(argmax), flip);
  }

  // The two largest values of a line.
  function two(line) {
    let first = -Infinity,
      second = -Infinity;
    for (const x of line) {
      if (x > first) [second, first] = [first, x];
      else if (x > second) second = x;
    }
    return [first, second];
  }

  // One step of the recursion: X - M(X)/factor, M the best others of row and column, times a power of two.
  function recursionStep(x, factor) {
    const weight = f32(1 / factor);
    let top = 0;
    for (const row of x) for (const value of row) top = Math.max(top, Math.abs(value));
    if (top > 0 && top < 2 ** -80) {
      x = each(x, (value) => f32(value * 2 ** 60));
      top *= 2 ** 60;
    }
    const scale = 2 ** -exponentOf(top);
    const rows = x.map(two),
      cols = turn(x).map(two);
    return each(x, (value, i, j) => {
      const row = value === rows[i][0] ? rows[i][1] : rows[i][0];
      const col = value === cols[j][0] ? cols[j][1] : cols[j][0];
      return f32(f32(value - f32(f32(row + col) * weight)) * scale);
    });
  }

  function recursed(s, { steps, factor }) {
    const count = steps === null ? Math.min(s.length, s[0].length) : steps;
    const states = [s];
    for (let k = 0; k < count; k++) states.push(recursionStep(states[k], factor));
    return states;
  }

  function union(x) {
    const found = new Set();
    for (const [i, row] of x.entries()) found.add(i * x[0].length + argmax(row));
    for (const [j, col] of turn(x).entries()) found.add(argmax(col) * x[0].length + j);
    return byRow([...found].map((k) => [Math.floor(k / x[0].length), k % x[0].length]));
  }

  function topk(x) {
    const cells = x.flatMap((row, i) => row.map((value, j) => [i, j, value]));
    cells.sort((a, b) => b[2] - a[2]);
    return byRow(cells.slice(0, Math.min(x.length, x[0].length)).map(([i, j]) => [i, j]));
  }

  const SELECTIONS = { stepped: greedyBest, argmax: argbest, union, topk };

  function recursive(s, options) {
    if (s.length === 1 || s[0].length === 1) return exact(s); // there is no other cell to compare with
    return SELECTIONS[options.select](recursed(s, options).at(-1));
  }

  // Rows propose under Gumbel noise, columns keep the strongest, losers repeat.
  function gumbel(s, { temperature, noise, seed }) {
    const [a, flip] = shortFirst(s);
    const { uniform } = brace.random(seed);
    const found = a.map(() => -1),
      taken = new Set();
    for (let round = 0; round < a.length; round++) {
      const winner = new Map();
      a.forEach((line, i) => {
        const z = line.map((x) => f32(f32(x / f32(temperature)) + noise * -Math.log(-Math.log(uniform()))));
        if (found[i] >= 0) return;
        let best = -1;
        z.forEach((value, j) => {
          if (!taken.has(j) && (best < 0 || value > z[best])) best = j;
        });
        if (best >= 0 && (!winner.has(best) || z[best] > winner.get(best)[1])) winner.set(best, [i, z[best]]);
      });
      if (!winner.size) break;
      for (const [j, [i]] of winner) {
        found[i] = j;
        taken.add(j);
      }
    }
    return pairsOf(found, flip);
  }

  function logsumexp(values) {
    const top = Math.max(...values);
    return top + Math.log(values.reduce((total, x) => total + Math.exp(x - top), 0));
  }

  // Entropic transport from half the range of the scores down to `coldest` of it: a plan of slices and cells.
  function sinkhornPlan(s, { steps, coldest }) {
    const [a] = shortFirst(s);
    const all = a.flat(),
      top = Math.max(...all),
      span = Math.max(top - Math.min(...all), Number.MIN_VALUE);
    const m = a[0].length;
    const x = Array.from({ length: m }, (_, i) =>
      i < a.length ? a[i].map((v) => (v - top) / span) : new Array(m).fill(0),
    );
    let price = new Array(m).fill(0),
      value = [],
      t = 1;
    for (let halving = 0; halving < Math.max(1, Math.ceil(-Math.log2(coldest))); halving++) {
      t /= 2;
      for (let k = 0; k < steps; k++) {
        value = x.map((row) => t * logsumexp(row.map((v, j) => (v - price[j]) / t)));
        price = price.map((_, j) => t * logsumexp(x.map((row, i) => (row[j] - value[i]) / t)));
      }
    }
    return a.map((_, i) => x[i].map((v, j) => Math.exp((v - value[i] - price[j]) / t)));
  }

  function sinkhorn(s, options) {
    const [, flip] = shortFirst(s);
    return byRow(greedyBest(sinkhornPlan(s, options)).map(([i, j]) => (flip ? [j, i] : [i, j])));
  }

  const OPTIONS = { ...presets.default, temperature: 0.02, noise: 1, seed: 0, coldest: 0.002 };

  // How the methods of the library are computed, by name: of scores and options.
  const compute = {
    exact,
    greedy_delta: greedyDelta,
    greedy_best: greedyBest,
    argbest,
    recursive_extend: recursive,
    recursive_top2: recursive,
    gumbel,
    sinkhorn: (s, { coldest }) => sinkhorn(s, { steps: 10, coldest }),
  };
  const computed = Object.keys(methods).filter((name) => compute[name]);

  const same = (a, b) => a[0] === b[0] && a[1] === b[1];

  function isValid(pairs, matrix) {
    const rows = new Set(pairs.map((p) => p[0])),
      cols = new Set(pairs.map((p) => p[1]));
    const wanted = Math.min(matrix.length, matrix[0].length);
    return pairs.length === wanted && rows.size === wanted && cols.size === wanted;
  }

  // No assignment has a larger sum than the best of every short line; of a square matrix, of either lines.
  function upperBound(s) {
    const [a] = shortFirst(s);
    const sum = (lines) => lines.reduce((total, line) => total + Math.max(...line), 0);
    return a.length === a[0].length ? Math.min(sum(a), sum(turn(a))) : sum(a);
  }

  // A method on the matrix rounded to a format, judged on the matrix as it is.
  function answer(matrix, maximize, method, format, options = {}) {
    const sign = maximize ? 1 : -1,
      o = { ...OPTIONS, ...options };
    const pairs = compute[method](
      each(matrix, (x) => sign * quantize(x, format)),
      o,
    );
    const total = pairs.reduce((sum, [i, j]) => sum + matrix[i][j], 0);
    return { pairs, total, valid: isValid(pairs, matrix) };
  }

  // All methods in all formats: sum, distance to the best sum, F1 of the cells, valid or not.
  function compare(matrix, maximize, options = {}) {
    const sign = maximize ? 1 : -1;
    const truth = exact(each(matrix, (x) => sign * x));
    const best = truth.reduce((sum, [i, j]) => sum + matrix[i][j], 0);
    const bound = upperBound(each(matrix, (x) => sign * x));
    const found = { truth, best };
    for (const method of computed) {
      found[method] = {};
      for (const format of Object.keys(formats)) {
        const a = answer(matrix, maximize, method, format, options);
        const shared = a.pairs.filter((p) => truth.some((q) => same(p, q))).length;
        found[method][format] = {
          ...a,
          lost: a.valid ? Math.max(0, sign * (best - a.total)) : NaN,
          gap: a.valid ? Math.max(0, (method === "exact" ? sign * best : bound) - sign * a.total) : NaN,
          f1: (2 * shared) / (a.pairs.length + truth.length),
        };
      }
    }
    return found;
  }

  // --- random matrices: name in the library -> number from (uniform, normal)
  const transform = {
    uniform: (u) => u,
    normal: (u, n) => n,
    detr: (u, n) => 5.5 + 2.5 * n,
    half_normal: (u, n) => Math.abs(0.3 * n),
    one_minus_half_normal: (u, n) => 1 - Math.abs(0.3 * n),
    sparse: (u, n) => (u < 0.5 ? Math.abs(0.3 * n) : 0),
  };
  const drawable = Object.entries(distributions).filter(([name]) => transform[name]);

  function draw(kind, rows, cols, sparsity, seed) {
    const { uniform, normal } = brace.random(seed);
    const one = () => {
      const x = transform[kind](uniform(), normal());
      return uniform() < sparsity ? 0 : f32(x);
    };
    return Array.from({ length: rows }, () => Array.from({ length: cols }, one));
  }

  return { OPTIONS, SELECTIONS, computed, drawable, quantize, recursed, answer, compare, draw };
})();

brace.page("assignment", (place) => {
  const { make, show } = brace;
  const A = brace.assignment;
  const { formats, methods, presets, distributions } = brace.registries;
  const state = {
    rows: 6,
    cols: 6,
    kind: "uniform",
    sparsity: 0,
    seed: 1,
    maximize: true,
    preset: "default",
    noise: 1,
    method: "exact",
    format: "fp32",
    step: 0,
    matrix: null,
    found: null,
  };

  // --- the matrix
  const grid = make("table", { class: "matrix", "aria-label": "The matrix; its cells can be edited" });
  const about = make("p", { class: "hint" });
  const spoken = brace.announcer();

  function build() {
    const body = state.matrix.map((row, i) =>
      make(
        "tr",
        {},
        ...row.map((x, j) =>
          make(
            "td",
            {},
            make("input", {
              type: "text",
              inputmode: "decimal",
              "aria-label": `row ${i + 1}, column ${j + 1}`,
              autocomplete: "off",
              onchange: (event) => edit(i, j, event.target),
              onkeydown: (event) => walk(event, i, j),
            }),
          ),
        ),
      ),
    );
    grid.replaceChildren(make("tbody", {}, ...body));
  }

  function edit(i, j, input) {
    const value = Number(input.value.replace("−", "-").replace(",", "."));
    if (Number.isFinite(value) && input.value.trim() !== "") state.matrix[i][j] = Math.fround(value);
    compute();
  }

  function walk(event, i, j) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], Enter: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.target.dispatchEvent(new Event("change"));
    grid.rows[(i + step[0] + state.rows) % state.rows].cells[j].firstChild.focus();
  }

  function shade(x, low, high) {
    return high > low ? (x - low) / (high - low) : 0.5;
  }

  function paint() {
    const chosen = new Set(state.found[state.method][state.format].pairs.map(String));
    const best = new Set(state.found.truth.map(String));
    const rounded = state.matrix.map((row) => row.map((x) => A.quantize(x, state.format)));
    const all = rounded.flat(),
      low = Math.min(...all),
      high = Math.max(...all);
    rounded.forEach((row, i) => {
      row.forEach((x, j) => {
        const cell = grid.rows[i].cells[j],
          key = String([i, j]);
        const input = cell.firstChild;
        if (document.activeElement !== input) input.value = show(x, Math.abs(x) >= 100 ? 0 : 2);
        cell.style.setProperty("--shade", shade(x, low, high).toFixed(3));
        cell.className = [chosen.has(key) && "chosen", best.has(key) && "best"].filter(Boolean).join(" ");
      });
    });
    const a = state.found[state.method][state.format];
    const words = a.valid
      ? `sum ${show(a.total)}, ${show(a.lost)} from the best; gap ${show(a.gap)} by its certificate`
      : `${a.pairs.length} cells, not a valid assignment`;
    const f1 = `F1 ${show(a.f1, 2)}. Dots mark the best assignment.`;
    about.textContent = `${state.method} in ${state.format}: ${words}; ${f1}`;
  }

  // --- all methods beside each other
  const results = make("tbody");
  const buttons = {};
  function answersOf(method) {
    buttons[method] = {};
    return Object.keys(formats).map((format) => {
      const node = make("button", { type: "button", class: "answer", onclick: () => pick(method, format) });
      buttons[method][format] = node;
      return make("td", { "data-format": format }, node);
    });
  }
  for (const [method, { title, says, source, color }] of Object.entries(methods)) {
    const swatch = make("i", {
      class: "swatch",
      style: `background: ${color}`,
      title: "its color in figures",
    });
    const words = make("small", { text: says, title: source });
    const head = make(
      "th",
      { scope: "row" },
      make("span", {}, swatch, title),
      make("code", { text: method }),
      words,
    );
    const here = A.computed.includes(method);
    const elsewhere = make("td", {
      class: "quiet",
      colspan: Object.keys(formats).length,
      text: brace.ELSEWHERE,
    });
    results.append(make("tr", { "data-name": method }, head, ...(here ? answersOf(method) : [elsewhere])));
  }
  const heads = Object.keys(formats).map((format) => make("th", { scope: "col", text: format }));
  const table = make(
    "table",
    { class: "answers" },
    make("caption", {
      text:
        "Each method on the matrix rounded to a format, judged on the matrix as it is: " +
        "sum, distance to the best sum, F1 of the cells.",
    }),
    make("thead", {}, make("tr", {}, make("th", { scope: "col", text: "method" }), ...heads)),
    results,
  );

  function pick(method, format) {
    Object.assign(state, { method, format });
    list();
    paint();
    spoken.say(about.textContent);
  }

  function list() {
    for (const [method, byFormat] of Object.entries(buttons)) {
      for (const [format, node] of Object.entries(byFormat)) {
        const a = state.found[method][format];
        const on = method === state.method && format === state.format;
        node.setAttribute("aria-pressed", on);
        node.classList.toggle("invalid", !a.valid);
        node.classList.toggle("optimal", a.valid && a.lost < 1e-6);
        node.style.setProperty("--share", Number.isFinite(a.f1) ? a.f1 : 0);
        const lost = a.valid ? (a.lost < 5e-4 ? "best" : `${show(a.lost)} lost`) : "not valid";
        node.replaceChildren(
          make("b", { text: show(a.total, 2) }),
          make("span", { text: lost }),
          make("small", { text: `F1 ${show(a.f1, 2)}` }),
        );
        node.setAttribute(
          "aria-label",
          `${method} in ${format}: sum ${show(a.total, 2)}, ${lost}, F1 ${show(a.f1, 2)}`,
        );
      }
    }
  }

  // --- the recursion, step by step
  const film = make("canvas", {
    role: "img",
    "aria-label": "The matrix of the recursion after the chosen step",
  });
  const filmWords = make("p", { class: "hint" });
  let timer = 0,
    states = [];
  const step = brace.slider("step", { min: 0, max: 10, value: 0 }, (k) => {
    state.step = k;
    drawFilm();
  });
  const playButton = brace.button("play", () => (timer ? stop() : start()));
  function stop() {
    clearInterval(timer);
    timer = 0;
    playButton.textContent = "play";
  }
  function start() {
    if (state.step >= states.length - 1) state.step = -1;
    playButton.textContent = "pause";
    timer = setInterval(() => {
      state.step += 1;
      step.set(state.step);
      drawFilm();
      if (state.step >= states.length - 1) stop();
    }, 600);
  }

  function drawFilm() {
    const sign = state.maximize ? 1 : -1,
      options = presets[state.preset];
    const scores = state.matrix.map((row) => row.map((x) => sign * A.quantize(x, state.format)));
    const single = state.rows === 1 || state.cols === 1;
    states = single ? [scores] : A.recursed(scores, options);
    step.set(Math.min(state.step, states.length - 1), { max: states.length - 1 });
    state.step = Math.min(state.step, states.length - 1);
    const x = states[state.step],
      pairs = A.SELECTIONS[options.select](x);
    const width = Math.min(film.parentElement.clientWidth, 420);
    const side = Math.min(width / state.cols, 44),
      height = side * state.rows;
    const all = x.flat(),
      low = Math.min(...all),
      high = Math.max(...all);
    film.style.width = `${side * state.cols}px`;
    const c = brace.fit(film, side * state.cols, height);
    x.forEach((row, i) => {
      row.forEach((value, j) => {
        c.fillStyle = brace.color("heat");
        c.globalAlpha = 0.06 + 0.9 * shade(value, low, high);
        c.fillRect(j * side + 1, i * side + 1, side - 2, side - 2);
      });
    });
    c.globalAlpha = 1;
    c.lineWidth = 2.5;
    c.strokeStyle = brace.color("chosen");
    for (const [i, j] of pairs) c.strokeRect(j * side + 3, i * side + 3, side - 6, side - 6);
    c.fillStyle = brace.color("text");
    for (const [i, j] of state.found.truth) {
      c.beginPath();
      c.arc((j + 0.5) * side, (i + 0.5) * side, Math.max(2, side / 12), 0, 7);
      c.fill();
    }
    const rows = new Set(pairs.map((p) => p[0])),
      cols = new Set(pairs.map((p) => p[1]));
    const right = pairs.filter((p) => state.found.truth.some((q) => String(p) === String(q))).length;
    const valid =
      rows.size === pairs.length &&
      cols.size === pairs.length &&
      pairs.length === Math.min(state.rows, state.cols);
    filmWords.textContent =
      `After ${state.step} of ${states.length - 1} steps of X − M(X)/${options.factor}: ` +
      `selected by ${options.select}, ${right} of ${pairs.length} cells are of the best assignment; ` +
      `${valid ? "valid" : "not valid"}.`;
  }

  // --- controls
  function fresh() {
    state.matrix = A.draw(state.kind, state.rows, state.cols, state.sparsity, state.seed);
    build();
    compute();
  }

  function compute() {
    const { select, steps, factor } = presets[state.preset];
    const options = { select, steps, factor, noise: state.noise, seed: state.seed };
    state.found = A.compare(state.matrix, state.maximize, options);
    list();
    paint();
    drawFilm();
  }

  const goal = brace.choice(
    "goal",
    [
      ["max", "largest sum"],
      ["min", "smallest sum"],
    ],
    "max",
    (value) => {
      state.maximize = value === "max";
      compute();
    },
  );
  const controls = make(
    "div",
    { class: "controls" },
    brace.slider("rows, m", { min: 1, max: 10, value: 6 }, (n) => {
      state.rows = n;
      fresh();
    }),
    brace.slider("columns, n", { min: 1, max: 10, value: 6 }, (n) => {
      state.cols = n;
      fresh();
    }),
    brace.choice(
      "drawn from",
      A.drawable.map(([name, { title }]) => [name, title]),
      "uniform",
      (kind) => {
        state.kind = kind;
        state.maximize = !distributions[kind].minimized;
        goal.select.value = state.maximize ? "max" : "min";
        fresh();
      },
    ),
    brace.slider(
      "zeros",
      { min: 0, max: 0.9, step: 0.05, value: 0, show: (x) => `${Math.round(100 * x)} %` },
      (x) => {
        state.sparsity = x;
        fresh();
      },
    ),
    goal,
    brace.button("new numbers", () => {
      state.seed += 1;
      fresh();
    }),
  );
  const more = make(
    "div",
    { class: "controls" },
    brace.choice("recursive rule", Object.keys(presets), "default", (name) => {
      state.preset = name;
      state.step = 0;
      compute();
    }),
    brace.slider("Gumbel noise", { min: 0, max: 3, step: 0.1, value: 1, show: (x) => x.toFixed(1) }, (x) => {
      state.noise = x;
      compute();
    }),
  );

  place.replaceChildren(
    controls,
    make(
      "div",
      { class: "two" },
      make("div", { class: "stage" }, make("div", { class: "scroll" }, grid), about),
      make("div", {}, make("div", { class: "scroll" }, table), more),
    ),
    make("h2", { text: "The recursion, step by step" }),
    make("div", { class: "controls" }, playButton, step),
    make("div", { class: "film" }, film),
    filmWords,
    spoken,
  );
  fresh();
  brace.redraw(film.parentElement, drawFilm);
});
