// What all pages to play with share: elements, colors of the theme, numbers as text, random numbers.
// Plain script, no library. Each page's mathematics lives in brace.<page> and touches no element.
"use strict";
window.brace = window.brace || {};
const brace = window.brace;

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const ELSEWHERE = "in Python only"; // in place of a number that no script computes

  // An element: tag, attributes (on* are listeners, text is its text), children.
  function make(tag, attributes = {}, ...children) {
    const svg = ["svg", "g", "line", "path", "rect", "circle", "text", "polyline", "title"].includes(tag);
    const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") node.textContent = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children);
    return node;
  }

  // The head of a table.
  function heads(words) {
    return make("thead", {}, make("tr", {}, ...words.map((text) => make("th", { scope: "col", text }))));
  }

  // A labelled slider with its value beside it; `change` is called with the number.
  function slider(label, { min, max, step = 1, value, show = String }, change) {
    const output = make("output", { text: show(value) });
    const input = make("input", {
      type: "range",
      min,
      max,
      step,
      value,
      oninput: () => {
        output.textContent = show(+input.value);
        change(+input.value);
      },
    });
    const node = make("label", { class: "field" }, make("span", { text: label }), input, output);
    node.set = (number, limits = {}) => {
      for (const [name, limit] of Object.entries(limits)) input[name] = limit;
      input.value = number;
      output.textContent = show(+input.value);
    };
    node.input = input;
    return node;
  }

  // A labelled choice; options are [value, text] or text.
  function choice(label, options, value, change) {
    const select = make("select", { onchange: () => change(select.value) });
    for (const option of options) {
      const [key, text] = Array.isArray(option) ? option : [option, option];
      select.append(new Option(text, key, false, key === value));
    }
    const node = make("label", { class: "field" }, make("span", { text: label }), select);
    node.select = select;
    return node;
  }

  function check(label, value, change) {
    const input = make("input", { type: "checkbox", onchange: () => change(input.checked) });
    input.checked = value;
    return make("label", { class: "field" }, input, make("span", { text: label }));
  }

  function button(label, action, attributes = {}) {
    return make("button", { type: "button", onclick: action, text: label, ...attributes });
  }

  // Call `move` while a mouse, a pen or a finger holds the element; a finger that holds it does not scroll.
  // (`touch-action` has no effect on parts of an svg.)
  function drag(node, move) {
    node.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      node.focus({ preventScroll: true });
      event.preventDefault();
    });
    node.addEventListener("pointermove", (event) => node.hasPointerCapture(event.pointerId) && move(event));
  }

  // A number as short text; a true minus sign.
  function show(x, digits = 3) {
    if (x === null || x === undefined || Number.isNaN(x)) return "–";
    if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
    const small = Math.abs(x) > 0 && Math.abs(x) < 0.5 * 10 ** -digits;
    const text = small ? `0.${"0".repeat(digits)}` : x.toFixed(digits);
    return text.replace("-", "−");
  }

  // Random numbers that repeat: mulberry32, uniform in (0, 1), and normal by Box and Muller.
  function random(seed) {
    let state = seed >>> 0;
    const uniform = () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 4294967296;
    };
    const normal = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
    return { uniform, normal };
  }

  // A color of the theme of now, as the page has it.
  function color(name) {
    return getComputedStyle(document.body).getPropertyValue(`--play-${name}`).trim();
  }

  // Call `draw` when the theme changes or the element gets another width.
  function redraw(element, draw) {
    new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    let width = 0;
    new ResizeObserver(() => {
      if (element.clientWidth !== width) {
        width = element.clientWidth;
        draw();
      }
    }).observe(element);
  }

  // A canvas as wide as its place, sharp on every screen; returns its context in CSS pixels.
  function fit(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }

  // Said to readers of the screen, at most a few times a second.
  function announcer() {
    const node = make("p", { class: "spoken", role: "status", "aria-live": "polite" });
    let timer = 0;
    node.say = (text) => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        node.textContent = text;
      }, 250);
    };
    return node;
  }

  // Start a page when its place is there.
  function page(name, build) {
    document.addEventListener("DOMContentLoaded", () => {
      const place = document.getElementById(`play-${name}`);
      if (place) build(place);
    });
  }

  Object.assign(brace, {
    ELSEWHERE,
    make,
    heads,
    slider,
    choice,
    check,
    button,
    drag,
    show,
    random,
    color,
    redraw,
    fit,
    announcer,
    page,
  });
})();
