// Builds and changes elements. Text is only ever set as text, so nothing a page says can become markup.

import { line, moment, ago } from "./format.js";

// h("a", {class: "x", href, onclick}, "text", element): the one way elements are made.
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  return put(element, ...children);
}

const isNode = (child) => child !== null && child !== undefined && child !== false;

// Replaces what is in an element; children that are null or false are left out.
export function put(element, ...children) {
  element.replaceChildren(...children.flat().filter(isNode));
  return element;
}

// Sets text only where it differs: a screen reader and a selection notice every change.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
  return element;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

// Makes the children of *parent* one per item, reusing those with the same key, so that focus and selection stay.
export function keep(parent, items, keyOf, make, update) {
  const known = (parent.rowsByKey ??= new Map());
  const wanted = new Set();
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    if (wanted.has(key)) continue;
    wanted.add(key);
    let row = known.get(key);
    if (!row) known.set(key, (row = make(item)));
    if (row === next) next = next.nextElementSibling;
    else parent.insertBefore(row, next);
    update(row, item);
  }
  for (const [key, row] of known) {
    if (wanted.has(key)) continue;
    row.remove();
    known.delete(key);
  }
}

// Foreign text: isolated, so that its direction changes nothing around it.
export function foreign(text, most = 200, tag = "bdi") {
  const whole = String(text ?? "");
  return h(
    tag,
    { dir: "auto", class: "foreign", title: whole.length > most ? line(whole, 600) : null },
    line(whole, most),
  );
}

// An address of the web: a link only if it is http or https.
export function outside(url, most = 120) {
  if (!isWeb(url)) return foreign(url, most);
  const link = h(
    "a",
    { href: url, target: "_blank", rel: "noopener noreferrer nofollow", class: "foreign", dir: "ltr" },
    line(url, most),
  );
  if (url.length > most) link.title = line(url, 600);
  return link;
}

function isWeb(url) {
  try {
    return ["http:", "https:"].includes(new URL(url).protocol);
  } catch {
    return false;
  }
}

export function time(iso) {
  return h("time", { datetime: iso, title: moment(iso) }, ago(iso));
}

// A table that scrolls sideways by keyboard, too. Columns: [label, class].
export function table(label, columns, { caption = false } = {}) {
  const body = h("tbody");
  const heads = columns.map(([text, kind]) => h("th", { scope: "col", class: kind }, text));
  const element = h(
    "div",
    { class: "scroll", role: "region", "aria-label": `Table: ${label}`, tabindex: "0" },
    h(
      "table",
      {},
      h("caption", { class: caption ? null : "unseen" }, label),
      h("thead", {}, h("tr", {}, heads)),
      body,
    ),
  );
  return { element, body, heads };
}

let announced;

// Says something to screen readers, politely.
export function announce(text) {
  const announcer = document.getElementById("announcer");
  announcer.textContent = "";
  clearTimeout(announced);
  announced = setTimeout(() => {
    announcer.textContent = text;
  }, 100);
}

// Elements of a view that change with each new job: `live.text(job => ...)`, then `live.update(job)`.
export class Live {
  #updates = [];

  add(update) {
    this.#updates.push(update);
  }

  text(of, tag = "span", properties = {}) {
    const element = h(tag, properties);
    this.add((job) => setText(element, of(job)));
    return element;
  }

  shown(element, when) {
    this.add((job) => show(element, Boolean(when(job))));
    return element;
  }

  update(job) {
    for (const update of this.#updates) update(job);
  }
}
