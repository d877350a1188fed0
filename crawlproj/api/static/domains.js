// Domains of a crawl: how fast, how far, what is wrong with them, and what to do.

import { adviceForParked, robotsText } from "./advice.js";
import { confirmed } from "./actions.js";
import { jobPath, query, repeat, request } from "./api.js";
import { announce, foreign, h, keep, setAttribute, setText, show, table } from "./dom.js";
import { bytes, count, counted, delay, line } from "./format.js";
import { Pager } from "./pager.js";

const EVERY_MS = 5000;
const ON_A_PAGE = 50;
const COLUMNS = [
  ["Domain"],
  ["Fetched", "number", "fetched"],
  ["Known", "number opt"],
  ["Delay", "number", "delay"],
  ["Failures", "number", "failures"],
  ["Received", "number opt"],
  ["robots.txt", "opt2 robots"],
];

export function domainsPanel(place, view, route, signal) {
  const { element: box, body, heads } = table("Domains", COLUMNS);
  const note = h("p", { class: "faint", role: "status" });
  const refusal = h("p", { class: "problem", role: "alert", hidden: true });
  const all = h("button", { type: "button", hidden: true }, "Release all parked");
  const pager = new Pager(() => refresh(), "domains");
  let parameters = route.parameters;
  const sort = () =>
    ["delay", "failures"].includes(parameters.get("sort")) ? parameters.get("sort") : "fetched";
  sortLinks(heads, view.id);
  const filter = h("input", {
    id: "d-q",
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
  });
  const parked = h("input", { id: "d-parked", type: "checkbox" });
  place.append(
    h(
      "section",
      { class: "card", "aria-label": "Domains" },
      h(
        "div",
        { class: "actions" },
        h("div", { class: "field inline" }, h("label", { for: "d-q" }, "Name contains"), filter),
        h("label", { class: "choice" }, parked, h("span", {}, "Only parked")),
        all,
        note,
      ),
      refusal,
      box,
      pager.element,
    ),
  );

  async function refresh() {
    const asked = location.hash;
    const answer = await request(
      jobPath(
        view.id,
        `/domains${query({ sort: sort(), limit: ON_A_PAGE, cursor: pager.cursor, q: filter.value.trim(), parked: parked.checked ? "true" : "" })}`,
      ),
      { signal },
    );
    if (asked !== location.hash) return;
    keep(
      body,
      answer.domains,
      (one) => one.domain,
      (one) => makeRow(one, view.id, release),
      updateRow,
    );
    show(box, answer.domains.length > 0);
    setText(note, noteOf(answer, filter.value || parked.checked));
    box.classList.toggle("no-robots", !answer.domains.some((one) => one.robots));
    pager.update(answer.next ?? null);
  }

  async function release(body, what) {
    show(refusal, false);
    try {
      const { domains, urls } = await request(jobPath(view.id, "/release"), { method: "POST", body });
      announce(`${what} released: ${counted(domains, "domain")}, ${counted(urls, "URL")}`);
      await refresh();
    } catch (error) {
      setText(refusal, line(error.message, 400));
      show(refusal, true);
    }
  }

  all.addEventListener("click", async () => {
    const text =
      "All parked domains and trapped URLs are crawled again. Sites that are still down are parked again at their next failure.";
    if (await confirmed("Release all parked domains?", [h("p", {}, text)], "Release"))
      release({ all: true }, "All");
  });
  let waiting = 0;
  const restart = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      pager.reset();
      refresh().catch(() => null);
    }, 250);
  };
  filter.addEventListener("input", restart);
  parked.addEventListener("change", restart);

  function go(to) {
    parameters = to.parameters;
    heads.forEach((head, i) =>
      setAttribute(head, "aria-sort", COLUMNS[i][2] === sort() ? "descending" : null),
    );
    pager.reset();
    refresh().catch(() => null);
  }
  heads.forEach((head, i) => setAttribute(head, "aria-sort", COLUMNS[i][2] === sort() ? "descending" : null));
  repeat(EVERY_MS, refresh, signal);
  return { go, update: (job) => show(all, job.parked_domains > 0) };
}

function sortLinks(heads, id) {
  heads.forEach((head, i) => {
    const [label, , name] = COLUMNS[i];
    if (name)
      head.replaceChildren(h("a", { href: `#/jobs/${encodeURIComponent(id)}/domains?sort=${name}` }, label));
  });
}

function noteOf({ domains, sample }, isFiltered) {
  if (!domains.length) return isFiltered ? "No such domain." : "No domains yet.";
  return sample ? "A sample: the crawl has too many domains to sort them all." : "";
}

function makeRow(one, id, release) {
  const pages = `#/jobs/${encodeURIComponent(id)}/pages${query({ domain: one.domain })}`;
  const button = h(
    "button",
    {
      type: "button",
      class: "small",
      onclick: () => release({ domains: [one.domain] }, one.domain),
      "aria-label": `Release ${one.domain}`,
    },
    "Release",
  );
  const state = h("p", { class: "words" }, h("span"), " ", button);
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("a", { href: pages }, foreign(one.domain, 80)), state),
    COLUMNS.slice(1).map(([, kind]) => h("td", { class: kind })),
  );
}

function updateRow(row, one) {
  const [name, fetched, known, wait, failures, size, robots] = row.cells;
  setText(fetched, count(one.fetched));
  setText(known, count(one.admitted));
  setText(wait, delay(one.delay_ms));
  setText(failures, count(one.failures));
  setText(size, bytes(one.bytes));
  setText(robots, line(robotsText(one.robots), 60));
  const state = name.lastElementChild;
  const [words, button] = state.children;
  const [what, todo] = one.parked ? adviceForParked(one.parked) : [];
  setText(
    words,
    one.parked ? `▲ parked: ${line(what, 80)}. ${todo}` : one.failures ? "Retried, more slowly." : "",
  );
  show(state, Boolean(one.parked || one.failures));
  show(button, Boolean(one.parked));
  row.classList.toggle("wrong", Boolean(one.parked));
}
