// A map of the emoji: places by t-SNE of a trained encoder's embeddings, codes, neighbors by three measures.
"use strict";

brace.map = (() => {
  // --- data and mathematics: views are four designers' pictures, then names in four languages

  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  // The arrays of map_data.js, and how to read them.
  function read(data) {
    const places = new Uint16Array(bytes(data.places.data).buffer);
    const near = new Uint16Array(bytes(data.near.data).buffer);
    const codes = bytes(data.codes.data);
    const [, concepts, width] = data.codes.shape,
      [, languages, , many] = data.near.shape;
    return {
      concepts,
      dim: 8 * width,
      // Place of a row of a view in the unit square; null where there is no picture.
      place(view, row) {
        const at = 2 * (view * concepts + row);
        return places[at] === 65535 ? null : [places[at] / 65534, places[at + 1] / 65534];
      },
      code: (view, row) =>
        codes.subarray((view * concepts + row) * width, (view * concepts + row + 1) * width),
      // Rows of the names with the largest cosine to a designer's picture.
      nearest(designer, language, row) {
        const at = ((designer * languages + language) * concepts + row) * many;
        return [...near.subarray(at, at + many)].filter((r) => r !== 65535);
      },
    };
  }

  const ONES = Uint8Array.from({ length: 256 }, (_, x) => {
    let count = 0;
    for (let rest = x; rest; rest &= rest - 1) count += 1;
    return count;
  });

  const active = (code) => code.reduce((total, byte) => total + ONES[byte], 0);
  const shared = (a, b) => a.reduce((total, byte, k) => total + ONES[byte & b[k]], 0);

  // Shared bits over bits set in one of the two; two empty codes are alike.
  function jaccard(a, b) {
    const both = shared(a, b),
      either = active(a) + active(b) - both;
    return either ? both / either : 1;
  }

  // Shared bits over the root of the product of the bits set; two empty codes are alike.
  function cosine(a, b) {
    const [x, y] = [active(a), active(b)];
    return x && y ? shared(a, b) / Math.sqrt(x * y) : +(x === y);
  }

  // Share of the dimensions with equal bits.
  function hamming(a, b) {
    return 1 - (active(a) + active(b) - 2 * shared(a, b)) / (8 * a.length);
  }

  const bit = (code, d) => (code[d >> 3] >> (d & 7)) & 1;

  // The rows of a view with the largest similarity to a code, best first; the first of equals.
  function nearestCodes(table, code, view, measure, many = 5) {
    const scores = Array.from({ length: table.concepts }, (_, row) => [
      measure(code, table.code(view, row)),
      row,
    ]);
    return scores
      .sort((a, b) => b[0] - a[0] || a[1] - b[1])
      .slice(0, many)
      .map(([, row]) => row);
  }

  // Rows whose captions begin with the words, whole words first, by language; at most `many`.
  function search(data, words, many = 24) {
    const wanted = words.trim().toLowerCase();
    if (!wanted) return [];
    const found = new Map();
    const rank = (text) =>
      text === wanted ? 0 : text.startsWith(wanted) ? 1 : text.includes(wanted) ? 2 : 3;
    data.words.forEach((list, language) => {
      for (const [text, rows] of Object.entries(list)) {
        const place = rank(text);
        if (place < 3)
          for (const row of rows) {
            if (!found.has(row) || found.get(row)[0] > place) found.set(row, [place, language, text]);
          }
      }
    });
    return [...found]
      .sort((a, b) => a[1][0] - b[1][0] || a[0] - b[0])
      .slice(0, many)
      .map(([row, [, language, text]]) => ({ row, language, text }));
  }

  // How the library's similarities of codes are computed, by name.
  const similarity = { jaccard, hamming, cosine };

  return { read, similarity, active, shared, bit, nearestCodes, search };
})();

brace.page("map", (place) => {
  const { make, show } = brace;
  const M = brace.map,
    data = brace.mapData,
    table = M.read(data);
  const languages = Object.keys(data.languages);
  const designers = data.designers.map((name) => brace.registries.designers[name].title);
  const state = {
    designer: 0,
    language: 0,
    row: null,
    zoom: 1,
    center: [0.5, 0.5],
    names: false,
    only: "",
    hits: [],
  };
  const canvas = make("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label":
      "The map of the emoji; arrow keys move it, plus and minus zoom, Enter chooses the emoji in the middle",
  });
  const panel = make("div", { class: "panel" });
  const hits = make("div", { class: "hits" });
  const spoken = brace.announcer();
  const hover = make("div", { class: "hover", hidden: true });
  let width = 600,
    height = 520;

  // --- pictures
  const sheets = data.designers.map((designer) => {
    const image = new Image();
    image.addEventListener("load", () => draw());
    image.src = `../_static/emoji_${designer}.webp`;
    return image;
  });
  const spot = (row) => [(row % data.columns) * data.side, Math.floor(row / data.columns) * data.side];

  function icon(row, designer = state.designer, size = 32) {
    const [x, y] = spot(row),
      scale = size / data.side;
    const rows = Math.ceil(table.concepts / data.columns);
    const style = [
      `width:${size}px;height:${size}px`,
      `background-image:url(../_static/emoji_${data.designers[designer]}.webp)`,
      `background-position:${-x * scale}px ${-y * scale}px`,
      `background-size:${data.columns * size}px ${rows * size}px`,
    ].join(";");
    return make("span", { class: "icon", style, role: "img", "aria-label": data.names[0][row] });
  }

  // --- the plane
  const toScreen = ([x, y]) => {
    const scale = Math.min(width, height) * state.zoom;
    return [(x - state.center[0]) * scale + width / 2, (y - state.center[1]) * scale + height / 2];
  };
  const shown = (row) => state.only === "" || data.category[row] === +state.only;

  function draw() {
    width = canvas.parentElement.clientWidth;
    height = Math.max(340, Math.min(620, width * 0.8));
    const c = brace.fit(canvas, width, height),
      size = Math.max(9, Math.min(40, 11 * Math.sqrt(state.zoom)));
    const marked = new Set(state.hits.map((h) => h.row));
    if (state.names) drawNames(c);
    for (let row = 0; row < table.concepts; row++) {
      const at = table.place(state.designer, row);
      if (!at) continue;
      const [x, y] = toScreen(at);
      if (x < -size || y < -size || x > width + size || y > height + size) continue;
      c.globalAlpha = shown(row) && (!marked.size || marked.has(row)) ? 1 : 0.22;
      c.drawImage(
        sheets[state.designer],
        ...spot(row),
        data.side,
        data.side,
        x - size / 2,
        y - size / 2,
        size,
        size,
      );
    }
    c.globalAlpha = 1;
    if (state.row !== null) drawChosen(c, size);
  }

  function drawNames(c) {
    c.fillStyle = brace.color("name");
    c.font = "10px sans-serif";
    for (let row = 0; row < table.concepts; row++) {
      const [x, y] = toScreen(table.place(data.designers.length + state.language, row));
      if (x < 0 || y < 0 || x > width || y > height || !shown(row)) continue;
      c.globalAlpha = 0.55;
      c.fillRect(x - 1.5, y - 1.5, 3, 3);
      if (state.zoom > 5) c.fillText(data.names[state.language][row], x + 4, y + 3);
    }
    c.globalAlpha = 1;
  }

  // The chosen picture, with lines to its names and to the other designers' pictures.
  function drawChosen(c, size) {
    const home = table.place(state.designer, state.row);
    if (!home) return;
    const [x, y] = toScreen(home);
    const views = data.designers.length + languages.length;
    for (let view = 0; view < views; view++) {
      const at = table.place(view, state.row);
      if (view === state.designer || !at) continue;
      const [u, v] = toScreen(at),
        name = view >= data.designers.length;
      c.strokeStyle = c.fillStyle = brace.color(name ? "name" : "chosen");
      c.lineWidth = 1.5;
      c.setLineDash(name ? [] : [4, 3]);
      c.beginPath();
      c.moveTo(x, y);
      c.lineTo(u, v);
      c.stroke();
      c.setLineDash([]);
      c.beginPath();
      c.arc(u, v, 4, 0, 7);
      c.fill();
      c.font = "bold 11px sans-serif";
      if (name) c.fillText(languages[view - data.designers.length], u + 6, v + 4);
      else
        c.drawImage(
          sheets[view],
          ...spot(state.row),
          data.side,
          data.side,
          u - size * 0.6,
          v - size * 0.6,
          size * 1.2,
          size * 1.2,
        );
    }
    c.drawImage(
      sheets[state.designer],
      ...spot(state.row),
      data.side,
      data.side,
      x - size,
      y - size,
      2 * size,
      2 * size,
    );
    c.strokeStyle = brace.color("chosen");
    c.lineWidth = 2.5;
    c.strokeRect(x - size - 1, y - size - 1, 2 * size + 2, 2 * size + 2);
  }

  function nearestOnScreen(x, y, reach = 22) {
    let best = null,
      least = reach;
    for (let row = 0; row < table.concepts; row++) {
      const at = table.place(state.designer, row);
      if (!at || !shown(row)) continue;
      const [u, v] = toScreen(at),
        distance = Math.hypot(u - x, v - y);
      if (distance < least) [best, least] = [row, distance];
    }
    return best;
  }

  // Show all places of a concept: its pictures by all designers, its names in all languages.
  function frame(row) {
    const places = Array.from({ length: data.designers.length + languages.length }, (_, view) =>
      table.place(view, row),
    ).filter(Boolean);
    const low = [0, 1].map((k) => Math.min(...places.map((p) => p[k])));
    const high = [0, 1].map((k) => Math.max(...places.map((p) => p[k])));
    state.center = [0, 1].map((k) => (low[k] + high[k]) / 2);
    state.zoom = Math.max(1, Math.min(6, 0.8 / Math.max(high[0] - low[0], high[1] - low[1], 1e-6)));
  }

  // --- the chosen emoji
  function choose(row, follow = false) {
    state.row = row;
    if (follow) frame(row);
    describe();
    draw();
    spoken.say(`${data.names[0][row]} chosen`);
  }

  function bits(mine, other) {
    const side = Math.round(Math.sqrt(table.dim));
    const counts = [M.active(mine), M.active(other), M.shared(mine, other)];
    const grid = make("div", {
      class: "bit-grid",
      style: `grid-template-columns:repeat(${side},1fr)`,
      role: "img",
      "aria-label": `${counts[0]} bits of the picture, ${counts[1]} of the name, ${counts[2]} of both`,
    });
    for (let d = 0; d < table.dim; d++) {
      const kind = M.bit(mine, d) + 2 * M.bit(other, d);
      grid.append(make("span", { class: ["", "picture", "name", "both"][kind] }));
    }
    return grid;
  }

  function neighbors(title, rows) {
    const language = state.language;
    const items = rows.map((row) =>
      make(
        "button",
        { type: "button", class: row === state.row ? "hit right" : "hit", onclick: () => choose(row, true) },
        icon(row, table.place(state.designer, row) ? state.designer : 0, 22),
        make("span", { text: data.names[language][row], lang: languages[language] }),
      ),
    );
    return make("div", { class: "near" }, make("h4", { text: title }), ...items);
  }

  const similarities = Object.entries(brace.registries.similarities);
  const similarityOf = (name, a, b) =>
    M.similarity[name] ? show(M.similarity[name](a, b), 2) : brace.ELSEWHERE;

  function describe() {
    const row = state.row;
    if (row === null) {
      panel.replaceChildren(
        make("p", {
          class: "hint",
          text:
            "Click a picture, or type a word: the map shows its code, the bits it shares with its name, " +
            "and which names are nearest.",
        }),
      );
      return;
    }
    const view = data.designers.length + state.language,
      here = table.place(state.designer, row);
    const names = make(
      "dl",
      {},
      ...languages.flatMap((lang, k) => [
        make("dt", { text: data.languages[lang] }),
        make("dd", { text: data.names[k][row], lang }),
      ]),
    );
    const [category, split] = [data.categories[data.category[row]], data.split[row]];
    const seen = split === "train" ? "was trained on this concept" : `never saw this concept (${split})`;
    const parts = [
      make(
        "div",
        { class: "chosen-head" },
        icon(row, here ? state.designer : 0, 64),
        make(
          "div",
          {},
          make("h3", { text: data.names[0][row] }),
          make("small", { text: `${category}; the encoder ${seen}` }),
        ),
      ),
      names,
    ];
    if (!here) parts.push(make("p", { text: `${designers[state.designer]} has no picture of it.` }));
    else {
      const mine = table.code(state.designer, row),
        other = table.code(view, row);
      parts.push(
        bits(mine, other),
        make(
          "p",
          { class: "hint" },
          make("span", { class: "key picture" }),
          ` picture ${M.active(mine)} `,
          make("span", { class: "key name" }),
          ` name ${M.active(other)} `,
          make("span", { class: "key both" }),
          ` both ${M.shared(mine, other)} of ${table.dim} bits; `,
          similarities.map(([name, { title }]) => `${title} ${similarityOf(name, mine, other)}`).join(", "),
        ),
      );
      parts.push(
        make("p", {
          class: "hint",
          text: `The nearest ${data.languages[languages[state.language]]} names of this picture:`,
        }),
        make(
          "div",
          { class: "nears" },
          neighbors("by float", table.nearest(state.designer, state.language, row)),
          ...similarities
            .filter(([name]) => M.similarity[name])
            .map(([name, { title }]) =>
              neighbors(`by ${title}`, M.nearestCodes(table, mine, view, M.similarity[name])),
            ),
        ),
      );
    }
    panel.replaceChildren(...parts);
  }

  // --- moving
  function zoom(factor, x = width / 2, y = height / 2) {
    const scale = Math.min(width, height) * state.zoom;
    const at = [state.center[0] + (x - width / 2) / scale, state.center[1] + (y - height / 2) / scale];
    const next = Math.max(0.8, Math.min(24, state.zoom * factor)),
      change = state.zoom / next;
    state.center = [0, 1].map((k) => at[k] + (state.center[k] - at[k]) * change);
    state.zoom = next;
    draw();
  }
  const pan = (x, y) => {
    const scale = Math.min(width, height) * state.zoom;
    state.center = [state.center[0] - x / scale, state.center[1] - y / scale];
    draw();
  };
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return; // until the map is in use
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
    },
    { passive: false },
  );
  // What holds the map: a mouse, a finger, or two that pull it apart
  const held = new Map();
  let moved = 0;
  function grip() {
    const at = [...held.values()],
      [a, b] = [at[0], at[at.length - 1]];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.hypot(a.x - b.x, a.y - b.y) };
  }
  canvas.addEventListener("pointerdown", (event) => {
    if (held.size > 1) return;
    moved = held.size ? Infinity : 0; // two fingers choose nothing
    held.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held.has(event.pointerId)) {
      const before = grip();
      held.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      const after = grip(),
        [x, y] = [after.x - before.x, after.y - before.y];
      moved += Math.abs(x) + Math.abs(y);
      if (before.apart && after.apart) zoom(after.apart / before.apart, before.x, before.y);
      return pan(x, y);
    }
    const row = nearestOnScreen(event.offsetX, event.offsetY);
    hover.hidden = row === null;
    if (row !== null) {
      hover.textContent = data.names[state.language][row];
      const [x, y] = [Math.min(event.offsetX + 12, width - 120), event.offsetY + 12];
      hover.style.transform = `translate(${x}px, ${y}px)`;
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const still = event.pointerType === "touch" ? 12 : 6; // pixels; a finger trembles
    if (held.has(event.pointerId) && moved < still) {
      const row = nearestOnScreen(event.offsetX, event.offsetY);
      if (row !== null) choose(row);
    }
    held.delete(event.pointerId);
  });
  canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => {
    hover.hidden = true;
  });
  const KEYS = {
    ArrowLeft: () => pan(40, 0),
    ArrowRight: () => pan(-40, 0),
    ArrowUp: () => pan(0, 40),
    ArrowDown: () => pan(0, -40),
    "+": () => zoom(1.3),
    "=": () => zoom(1.3),
    "-": () => zoom(1 / 1.3),
    Enter: () => {
      const row = nearestOnScreen(width / 2, height / 2, Infinity);
      if (row !== null) choose(row);
    },
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  // --- controls
  const words = make("input", {
    type: "search",
    placeholder: "apple, gato, maji, 心",
    "aria-label": "a word that the data hold",
    autocomplete: "off",
  });
  words.addEventListener("input", () => {
    state.hits = M.search(data, words.value);
    hits.replaceChildren(
      ...state.hits.map(({ row, language, text }) =>
        make(
          "button",
          { type: "button", class: "hit", onclick: () => choose(row, true) },
          icon(row, table.place(state.designer, row) ? state.designer : 0, 22),
          make("span", { text, lang: languages[language] }),
        ),
      ),
    );
    if (words.value.trim() && !state.hits.length)
      hits.replaceChildren(
        make("p", { class: "hint", text: "No caption in the four languages has this word." }),
      );
    draw();
  });
  words.addEventListener(
    "keydown",
    (event) => event.key === "Enter" && state.hits.length && choose(state.hits[0].row, true),
  );
  const pictures = designers.map((title, k) => [
    k,
    data.designers[k] === data.unseen ? `${title} (never trained on)` : title,
  ]);
  const controls = make(
    "div",
    { class: "controls" },
    brace.choice("pictures by", pictures, 0, (k) => {
      state.designer = +k;
      describe();
      draw();
    }),
    brace.choice(
      "language",
      languages.map((lang, k) => [k, data.languages[lang]]),
      0,
      (k) => {
        state.language = +k;
        describe();
        draw();
      },
    ),
    brace.choice("show", [["", "everything"], ...data.categories.map((name, k) => [k, name])], "", (k) => {
      state.only = k;
      draw();
    }),
    brace.check("places of the names", false, (yes) => {
      state.names = yes;
      draw();
    }),
    make("label", { class: "field" }, make("span", { text: "word" }), words),
  );
  const zooms = make(
    "div",
    { class: "zooms" },
    brace.button("+", () => zoom(1.4), { "aria-label": "zoom in" }),
    brace.button("−", () => zoom(1 / 1.4), { "aria-label": "zoom out" }),
    brace.button("whole map", () => {
      Object.assign(state, { zoom: 1, center: [0.5, 0.5] });
      draw();
    }),
  );
  place.replaceChildren(
    controls,
    hits,
    make("div", { class: "two map" }, make("div", { class: "stage plane" }, canvas, hover, zooms), panel),
    spoken,
  );
  describe();
  brace.redraw(canvas.parentElement, draw);
  draw();
});
