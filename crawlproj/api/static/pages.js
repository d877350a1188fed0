// Stored pages: the newest, a search in their text, and one page whole. Everything in them is foreign text.

import { adviceFor } from "./advice.js";
import { jobPath, query, request } from "./api.js";
import { announce, foreign, h, keep, outside, put, setText, show } from "./dom.js";
import { bytes, count, counted, line, moment, visible } from "./format.js";
import { address, pageRow, statusChip } from "./pagerow.js";
import { Pager } from "./pager.js";

const ON_A_PAGE = 50;
const TEXT_STEP = 20_000;
const FILTERS = ["q", "domain", "status", "since", "until"];
// Shown first; the other columns are in a table below the text.
const HEAD = ["fetched_at", "language", "content_type", "body_bytes", "depth", "latency_ms"];

export function pagesPanel(place, view, route, signal) {
  const list = new PageList(view, signal);
  const detail = h("article", { class: "card page" });
  place.append(list.element, detail);
  function go({ path, parameters }) {
    show(list.element, !path[3]);
    show(detail, Boolean(path[3]));
    if (path[3]) showPage(detail, view.id, path[3], parameters, signal);
    else list.go(parameters);
  }
  go(route);
  return { go, update: (job) => list.update(job) };
}

class PageList {
  #turn = 0;
  #shownFor = null;
  #known = 0;

  constructor(view, signal) {
    this.view = view;
    this.signal = signal;
    this.pager = new Pager(() => this.load(true), "stored pages");
    this.note = h("p", { class: "faint", role: "status" });
    this.stop = h(
      "button",
      { type: "button", hidden: true, onclick: () => (this.isStopped = true) },
      "Stop searching",
    );
    this.fresh = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.restart() });
    this.list = h("ol", { class: "pages" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.form = this.#form();
    this.element = h(
      "section",
      { class: "card", "aria-label": "Stored pages" },
      this.form,
      h("div", { class: "actions" }, this.note, this.stop, this.fresh),
      this.problem,
      this.list,
      this.pager.element,
    );
  }

  #form() {
    const field = (name, label, properties) =>
      h(
        "div",
        { class: "field" },
        h("label", { for: `p-${name}` }, label),
        h("input", { id: `p-${name}`, name, autocomplete: "off", ...properties }),
      );
    const form = h(
      "form",
      { class: "search", role: "search", novalidate: true },
      field("q", "Search in URLs, titles and text", { type: "search", class: "wide" }),
      field("domain", "Domain", { spellcheck: "false", autocapitalize: "off" }),
      field("status", "Status", { inputmode: "numeric", size: "5", placeholder: "any" }),
      field("since", "From", { type: "date" }),
      field("until", "To", { type: "date" }),
      h("button", { class: "main" }, "Search"),
      h("button", { type: "reset" }, "Clear"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const wanted = address(
        this.view.id,
        new URLSearchParams(FILTERS.map((name) => [name, form.elements[name].value.trim()])),
      );
      if (location.hash === wanted) this.restart();
      else location.hash = wanted;
    });
    form.addEventListener("reset", () => {
      location.hash = address(this.view.id, new URLSearchParams());
    });
    return form;
  }

  go(parameters) {
    this.parameters = parameters;
    for (const name of FILTERS) this.form.elements[name].value = parameters.get(name) ?? "";
    // Back from a page: the list is as it was.
    if (this.#shownFor === parameters.toString()) return;
    this.restart();
  }

  restart() {
    this.#shownFor = this.parameters.toString();
    this.pager.reset();
    this.load();
  }

  get filters() {
    const given = Object.fromEntries(FILTERS.map((name) => [name, this.parameters.get(name) ?? ""]));
    // To the end of the day.
    if (/^\d{4}-\d\d-\d\d$/.test(given.since)) given.since += "T00:00:00Z";
    if (/^\d{4}-\d\d-\d\d$/.test(given.until)) given.until += "T23:59:59.999Z";
    return given;
  }

  // A request reads for less than a second, so a search takes several: each adds what it found.
  async load(isTurned = false) {
    const turn = (this.#turn += 1);
    const isSearch = Object.values(this.filters).some(Boolean);
    const found = [];
    let cursor = this.pager.cursor;
    this.isStopped = false;
    show(this.problem, false);
    show(this.fresh, false);
    setText(this.note, isSearch ? "Searching …" : "Loading …");
    this.#known = this.view.job?.pages_stored ?? 0;
    try {
      do {
        const answer = await request(
          jobPath(
            this.view.id,
            `/pages${query({ ...this.filters, limit: ON_A_PAGE - found.length, cursor })}`,
          ),
          { signal: this.signal },
        );
        if (turn !== this.#turn) return;
        found.push(...answer.pages);
        cursor = answer.next;
        this.#draw(found, answer, isSearch, cursor !== null && found.length < ON_A_PAGE);
      } while (cursor && found.length < ON_A_PAGE && !this.isStopped);
      this.pager.update(cursor);
      if (isTurned || isSearch) announce(this.note.textContent);
    } catch (error) {
      if (this.signal.aborted || turn !== this.#turn) return;
      setText(this.note, "");
      setText(this.problem, line(error.message, 400));
      show(this.problem, true);
      this.#shownFor = null;
    } finally {
      if (turn === this.#turn) show(this.stop, false);
    }
    if (isTurned) this.element.scrollIntoView({ block: "start" });
  }

  #draw(found, { searched_pages: searched, total_pages: total }, isSearch, isGoingOn) {
    const words = this.parameters.get("q") ?? "";
    // Rows of another search have other marks.
    keep(
      this.list,
      found,
      (page) => `${page.id} ${words}`,
      (page) => pageRow(this.view.id, page, words, this.parameters),
      () => {},
    );
    show(this.stop, isSearch && isGoingOn);
    const read =
      typeof searched === "number" && typeof total === "number" && searched < total
        ? `; ${count(searched)} of ${count(total)} pages searched`
        : "";
    if (isSearch)
      setText(
        this.note,
        `${found.length ? counted(found.length, "page") : isGoingOn ? "Nothing" : "No pages"} found${isGoingOn ? " so far" : ""}${read}`,
      );
    else
      setText(
        this.note,
        found.length
          ? `${counted(total, "page")} stored, newest first`
          : "No pages on disk yet: they appear when a parser has committed its segment.",
      );
  }

  update(job) {
    const more = job.pages_stored - this.#known;
    const isFirst = this.parameters && this.pager.number === 1 && !this.#turnIsBusy;
    show(this.fresh, Boolean(isFirst && more > 0));
    if (more > 0) setText(this.fresh, `Show ${counted(more, "newer page")}`);
  }

  get #turnIsBusy() {
    return this.note.textContent.endsWith("…");
  }
}

async function showPage(place, id, pageId, parameters, signal) {
  const back = h("p", {}, h("a", { href: address(id, parameters) }, "‹ All stored pages"));
  place.replaceChildren(back, h("p", { class: "faint", role: "status" }, "Loading …"));
  let page;
  try {
    page = await request(jobPath(id, `/pages/${encodeURIComponent(pageId)}`), { signal });
  } catch (error) {
    if (!signal.aborted)
      place.replaceChildren(back, h("p", { class: "problem", role: "alert" }, line(error.message, 400)));
    return;
  }
  const title = h("h2", { tabindex: "-1" }, foreign(page.title || page.url, 300));
  const [what, todo] = page.error ? adviceFor(page.error) : [];
  put(
    place,
    back,
    h("div", { class: "head" }, title, statusChip(page)),
    h("div", { class: "url" }, outside(page.url, 400)),
    h(
      "dl",
      { class: "facts" },
      HEAD.filter((name) => page[name] !== null && page[name] !== undefined).map((name) =>
        fact(name, page[name]),
      ),
    ),
    page.error ? h("p", {}, h("b", {}, foreign(page.error, 200)), what ? `: ${what}. ${todo}` : "") : null,
    textOf(page.text ?? ""),
    columns(page),
  );
  title.focus({ preventScroll: true });
}

const NAMES = { fetched_at: "fetched", body_bytes: "size", latency_ms: "latency", content_type: "type" };

function fact(name, value) {
  const shown =
    { fetched_at: moment, body_bytes: bytes, latency_ms: (ms) => `${count(ms)} ms` }[name]?.(value) ??
    line(value, 80);
  return h("div", {}, h("dt", {}, NAMES[name] ?? name), h("dd", {}, shown));
}

function textOf(text) {
  if (!text) return h("p", { class: "empty" }, "No text is stored for this page.");
  const body = h("div", { class: "text foreign", dir: "auto" });
  const more = h("button", { type: "button" });
  let shown = 0;
  const add = () => {
    body.append(visible(text.slice(shown, shown + TEXT_STEP)));
    shown = Math.min(text.length, shown + TEXT_STEP);
    show(more, shown < text.length);
    setText(more, `Show more: ${count(text.length - shown)} characters left`);
  };
  more.addEventListener("click", add);
  add();
  return h("section", { "aria-label": "Text of the page" }, body, more);
}

function columns(page) {
  const rest = Object.entries(page).filter(
    ([name, value]) =>
      !["text", "title", "url", "status"].includes(name) &&
      value !== null &&
      value !== "" &&
      !HEAD.includes(name),
  );
  return h(
    "details",
    {},
    h("summary", {}, "All columns"),
    h(
      "dl",
      { class: "rules" },
      rest.map(([name, value]) =>
        h(
          "div",
          {},
          h("dt", {}, line(name, 80)),
          h("dd", {}, foreign(typeof value === "string" ? value : JSON.stringify(value), 2000)),
        ),
      ),
    ),
  );
}
