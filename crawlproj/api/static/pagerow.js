// A stored page in a list. Everything in it is foreign text.

import { query } from "./api.js";
import { foreign, h, outside, time } from "./dom.js";
import { counted, line } from "./format.js";

export const address = (id, parameters, page = "") =>
  `#/jobs/${encodeURIComponent(id)}/pages${page ? `/${encodeURIComponent(page)}` : ""}${query(Object.fromEntries(parameters))}`;

export function pageRow(id, page, words = "", parameters = new URLSearchParams()) {
  const facts = [];
  if (page.language) facts.push(line(page.language, 12));
  if (page.text_chars) facts.push(counted(page.text_chars, "character"));
  const title = page.title ? foreign(page.title, 160) : foreign(page.url, 160);
  return h(
    "li",
    {},
    h(
      "div",
      { class: "head" },
      h("a", { class: "page-title", href: address(id, parameters, page.id) }, title),
      statusChip(page),
    ),
    page.title ? h("div", { class: "url" }, outside(page.url)) : null,
    page.snippet
      ? h("p", { class: "snippet foreign", dir: "auto" }, marked(line(page.snippet, 400), words))
      : null,
    h("p", { class: "faint" }, facts.length ? `${facts.join(", ")}, ` : "", time(page.fetched_at)),
  );
}

export function statusChip({ status, error }) {
  const isGood = status >= 200 && status < 300 && !error;
  const text = status ? `${status}${error ? `: ${line(error, 40)}` : ""}` : line(error || "no answer", 50);
  return h(
    "span",
    { class: "chip", "data-state": isGood ? "good" : status >= 300 && status < 400 ? "moved" : "bad" },
    foreign(text, 60),
  );
}

// Text with what was searched for marked, as nodes.
function marked(text, words) {
  if (!words) return [text];
  const parts = [];
  const lower = text.toLowerCase();
  const wanted = words.toLowerCase();
  // Lower case can change the length of some texts: their marks would be beside the words.
  if (lower.length !== text.length) return [text];
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), h("mark", {}, text.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  return [...parts, text.slice(from)];
}
